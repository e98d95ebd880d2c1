"""Write the rings of a one-node object server:
`python swift_rings.py FOLDER ACCOUNT CONTAINER OBJECT`.

Runs in the object server's own virtual environment. A ring says where data live; here everything
lives once, on device `d1` of this host, at the three given ports.
"""

import sys
from pathlib import Path

from swift.common.ring import RingBuilder

folder = Path(sys.argv[1])
for kind, port in zip(("account", "container", "object"), map(int, sys.argv[2:5]), strict=True):
    builder = RingBuilder(part_power=4, replicas=1, min_part_hours=1)
    builder.add_dev(
        {
            "region": 1,
            "zone": 1,
            "device": "d1",
            "weight": 1.0,
            "meta": "",
            "ip": "127.0.0.1",
            "port": port,
            "replication_ip": "127.0.0.1",
            "replication_port": port,
        }
    )
    builder.rebalance()
    builder.get_ring().save(str(folder / f"{kind}.ring.gz"))
