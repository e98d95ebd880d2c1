#!/bin/sh
# Makes the bucket, and the account by which Perennial uses it: it may read and write there, and nothing else of the
# store. Safe to repeat. Run in MinIO's image, which has `mc` and little beside it; the account's key comes over standard
# input and the root account's in the environment, since a command line is seen by the whole machine.
set -eu
root=$(cat /run/secrets/store-root-password)
export MC_HOST_root="http://root:$root@minio:9000"
mc mb --ignore-existing root/perennial
mc admin policy create root perennial /deploy/store-policy.json
echo "$(cat /run/secrets/store-secret-key)" | mc admin user add root perennial
# mc reports a policy that is attached already as an error, and this script must be safe to repeat.
said=$(mc admin policy attach root perennial --user perennial 2>&1) || case $said in
*"already in effect"*) ;;
*)
    echo "$said" >&2
    exit 1
    ;;
esac
