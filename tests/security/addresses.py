"""Addresses that try to lead a webhook inside, and what a resolver says of their names."""

from dataclasses import dataclass

V4 = ("127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.1.1", "169.254.169.254",
      "100.64.0.1", "0.0.0.0", "0.1.2.3", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9",
      "192.88.99.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
      "168.63.129.16", "100.100.100.200", "192.0.0.192", "169.254.170.2")  # fmt: skip
V6 = (
    "::1", "::", "fe80::1", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "100::1", "2001:db8::1", "3fff::1",
    "5f00::1", "4000::1", "2001::1", "2001:0:53aa:64c:0:5efe:7f00:1", "2001:2::1", "2001:10::1", "64:ff9b:1::a00:1",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::ffff:7f00:1", "::ffff:0:127.0.0.1",
    "::127.0.0.1", "::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b::a00:1",
    "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:c0a8:101::", "2606:4700::5efe:127.0.0.1",
    "2606:4700::200:5efe:10.0.0.1", "::ffff:168.63.129.16", "64:ff9b::168.63.129.16", "2002:a83f:8110::1",
    "fd00:ec2::254", "fd20:ce::254",
)  # fmt: skip
"""Literal addresses that are not public, or stand for one that is not."""
SPELLINGS = (
    "https://2130706433/", "https://0x7f000001/", "https://0x7f.0.0.1/", "https://0177.0.0.1/", "https://017700000001/",
    "https://127.1/", "https://127.0.1/", "https://127.0.0.01/", "https://0/", "https://00000/", "https://1.2.3.4.5/",
    "https://256.0.0.1/", "https://127.0.0.1./", "https://localhost./", "https://example.org./",
    "https://[::1%25lo]/", "https://[fe80::1%eth0]/", "https://[::ffff:127.0.0.1/", "https://[127.0.0.1]/",
    "https://[0:0:0:0:0:0:0:0:1]/", "https://::1/", "https://user@example.org/", "https://user:pw@example.org/",
    "https://example.org@127.0.0.1/", "https://example.org#@127.0.0.1/", "https://127.0.0.1\\@example.org/",
    "https://example.org\\.evil.test/", "https:\\\\127.0.0.1/", "https:/127.0.0.1/", "https:127.0.0.1", "//127.0.0.1/",
    "https://exa mple.org/", "https://example.org/a b", "https://example.org/\r\nHost: 127.0.0.1", "https://example.org/\t",
    " https://example.org/", "https://example.org/ ", "\thttps://example.org/", "https://example.org/\n",
    "https://example.org:0/", "https://example.org:65536/", "https://example.org:99999/", "https://example.org:/",
    "https://example.org:443a/", "https://example.org:-1/", "https://example.org:+443/", "https://example.org:0443/",
    "https://example.org:443:80/", "https://example.org:\uff14\uff14\uff13/", "https://ⓔⓧⓐⓜⓟⓛⓔ.org/",
    "https://127。0。0。1/", "https://127．0．0．1/", "https://１２７.0.0.1/", "https://①②⑦.0.0.1/", "https://loca\u017fhost/",
    "https://\u212aelvin.org/", "https://exa\u00admple.org/", "https://example\u200b.org/", "https://%31%32%37.0.0.1/",
    "https://127.0.0.1%2f@example.org/", "https://example.org%00.evil.test/", "https://-example.org/",
    "https://example-.org/", "https://exa_mple.org/", "https://.example.org/", "https://example..org/", "https://./",
    "https:///path", "https://", "", "file:///etc/passwd", "ftp://example.org/",
    "gopher://127.0.0.1:6379/_INFO", "javascript:alert(1)", "unix:///var/run/docker.sock", "data:text/plain,a",
    "ws://example.org/", "https://" + "a" * 64 + ".org/", "https://" + "a." * 127 + "org/",
    "https://a.org/" + "a" * 2000,
    "https://example.org/#fragment", "https://example.org/<>", "https://example.org/\"", "https://example.org/\x00",
    "https://example.org?url=x", "https://0x7f.1/", "https://1.1.1.0x1/",
)  # fmt: skip
"""Addresses that no webhook may have: another way to write an address, or one that two readers read in two
ways.
"""


@dataclass(frozen=True)
class Named:
    """A harmless-looking name, and what the resolver says of it."""

    url: str
    answers: tuple[str, ...]


NAMES = tuple(
    Named(f"https://receiver-{number}.test/", answers)
    for number, answers in enumerate(
        [
            *((address,) for address in (*V4, *V6)),
            ("93.184.215.14", "127.0.0.1"),  # one of several
            ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::1"),
            ("169.254.169.254", "93.184.215.14"),
            ("fe80::1%eth0",),
            ("2606:4700::1%eth0",),
            (),
        ]
    )
)
LITERALS = (*(f"https://{one}/" for one in V4), *(f"https://[{one}]/" for one in V6))
INSIDE = (
    "https://localhost/",
    "https://LOCALHOST/",
    "http://localhost:8000/v1/keys",
    "http://[::1]:8000/",
)
"""Resolved by the system itself."""
FINE = (
    "https://example.org", "https://example.org/", "https://example.org:8443/a/b?c=d&e=%20", "https://xn--bcher-kva.example/",
    "https://EXAMPLE.org/hook", "https://93.184.215.14/", "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:8443/x",
    "https://a.b-c.d0.example/~x/;y=(1)!*'@:$,",
)  # fmt: skip
