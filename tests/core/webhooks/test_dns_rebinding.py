"""Rebinding by a real name server that the system's own resolver asks: it says something else at
every question.

In a mount namespace of its own, so that the machine's resolver stays as it is. Needs root and port
53 of 127.0.0.53.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.campaign
ROOT = Path(__file__).parents[3]
PROGRAM = '''
import json, socket, struct, sys, threading
sys.path.insert(0, sys.argv[1])
from perennial.public_address import parse_ip_networks, parse_url_target, resolve_host_name
from core.webhooks.guarded_http import GuardedRequestSettings, NoHttpResponseError
from core.webhooks.guarded_http import post_guarded_request

asked = 0
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.53", 53))

def serve():
    """A: 127.0.0.1 and 127.0.0.2 in turns, or both of them for both.test; no AAAA; a TTL of 0."""
    global asked
    while True:
        data, where = server.recvfrom(512)
        end = data.index(0, 12) + 5
        kind = struct.unpack(">H", data[end - 4:end - 2])[0]
        name = data[13:13 + data[12]]
        answers = []
        if kind == 1:
            asked += 1
            answers = ["127.0.0.1", "127.0.0.2"] if name == b"both" else [f"127.0.0.{asked % 2 + 1}"]
        body = b"".join(b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\0\\0\\4" + socket.inet_aton(one) for one in answers)
        server.sendto(data[:2] + struct.pack(">HHHHH", 0x8180, 1, len(answers), 0, 0) + data[12:end] + body, where)

def receive(address, seen):
    listener = socket.create_server((address, PORT))
    while True:
        connection, _ = listener.accept()
        seen.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 204 No Content\\r\\nContent-Length: 0\\r\\n\\r\\n")
        connection.close()

PORT = 21953
allowed, inside = [], []
for target, *given in ((serve,), (receive, "127.0.0.1", allowed), (receive, "127.0.0.2", inside)):
    threading.Thread(target=target, args=given, daemon=True).start()
# 127.0.0.1 stands for the public Internet, 127.0.0.2 for the inside
way = GuardedRequestSettings(parse_ip_networks("127.0.0.1/32"), 5.0)
sent, refused = 0, []
for name in ["receiver"] * 40 + ["both"] * 5:
    try:
        sent += post_guarded_request(parse_url_target(f"http://{name}.test:{PORT}/"), {}, b"{}", way).status == 204
    except NoHttpResponseError as error:
        refused.append(str(error))
found = sorted({tuple(resolve_host_name("receiver.test", PORT)) for _ in range(20)})
print(json.dumps({"sent": sent, "refused": refused, "allowed": len(allowed), "inside": len(inside), "seen": found}))
'''


def test_a_name_that_moves_inside_between_two_questions_leads_nowhere_inside(
    tmp_path: Path,
) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.53\noptions attempts:1 timeout:2\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    program = f"exec {sys.executable} {tmp_path}/program.py {ROOT}"
    bound = f"mount --bind {tmp_path}/resolv.conf /etc/resolv.conf && {program}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", bound], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["seen"] == [
        ["127.0.0.1"],
        ["127.0.0.2"],
    ]  # the resolver is asked each time, and is lied to
    assert found["inside"] == 0 and found["sent"] == found["allowed"] > 0
    assert len(found["refused"]) + found["sent"] == 45 and len(found["refused"]) > 5
    assert all("127.0.0.2 is a loopback address" in said for said in found["refused"])
