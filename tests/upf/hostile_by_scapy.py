"""Sends control messages from and to addresses that no single host has. Each input line names an
interface, its MAC address behind it, and a kind; the output line is the number of frames sent."""
import json
import socket
import sys

from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, \
    ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6ND_RA, ICMPv6ND_Redirect, ICMPv6ND_RS, \
    ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, ICMPv6PacketTooBig, IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

V4 = {"unspecified": "0.0.0.0", "multicast": "224.0.0.1", "loopback": "127.0.0.1",
      "broadcast": "255.255.255.255", "reserved": "240.0.0.1"}
V6 = {"mapped": "::ffff:192.0.2.1", "unspecified": "::", "multicast": "ff02::1",
      "loopback": "::1", "compatible": "::192.0.2.1"}
MAC = "02:00:00:00:09:09"


def pairs(odd, own, host):
    """Returns each odd address, and dray's own, as source, as destination, and as both."""
    odd = list(odd.values()) + [own]
    return [(a, own) for a in odd] + [(host, b) for b in odd] + [(a, b) for a in odd for b in odd]


def messages(kind, own4, host4, own6, host6):
    if kind == "icmp":
        for src, dst in pairs(V4, own4, host4):
            for number in (0, 3, 5, 8, 11, 13):
                yield IP(src=src, dst=dst) / ICMP(type=number) / Raw(b"hostile")
    elif kind == "icmpv6":
        for src, dst in pairs(V6, own6, host6):
            for message in (ICMPv6EchoRequest(data=b"hostile"), ICMPv6EchoReply(data=b"hostile"),
                            ICMPv6DestUnreach() / Raw(b"hostile" * 8),
                            ICMPv6PacketTooBig(mtu=1280) / Raw(b"hostile" * 8)):
                yield IPv6(src=src, dst=dst) / message
    elif kind == "discovery":
        for src, dst in pairs(V6, own6, host6):
            for target in list(V6.values()) + [own6, host6]:
                for mac in (MAC, "ff:ff:ff:ff:ff:ff"):
                    for message in (ICMPv6ND_NS(tgt=target) / ICMPv6NDOptSrcLLAddr(lladdr=mac),
                                    ICMPv6ND_NA(tgt=target) / ICMPv6NDOptDstLLAddr(lladdr=mac)):
                        yield IPv6(src=src, dst=dst, hlim=255) / message
            for message in (ICMPv6ND_RS(), ICMPv6ND_RA(), ICMPv6ND_Redirect(tgt=src, dst=dst)):
                yield IPv6(src=src, dst=dst, hlim=255) / message
    elif kind == "udp":
        for src, dst in pairs(V4, own4, host4):
            for port in (53, 2152):
                yield IP(src=src, dst=dst) / UDP(sport=2152, dport=port) / \
                    Raw(bytes([0x32, 1, 0, 4, 0, 0, 0, 0, 0, 7, 0, 0]))
        for src, dst in pairs(V6, own6, host6):
            for port in (53, 2152):
                yield IPv6(src=src, dst=dst) / UDP(sport=2152, dport=port) / \
                    Raw(bytes([0x32, 1, 0, 4, 0, 0, 0, 0, 0, 7, 0, 0]))


def frames(kind, own_mac, own4, host4, own6, host6):
    for mac in (own_mac, "ff:ff:ff:ff:ff:ff"):
        if kind == "arp":
            for src, dst in pairs(V4, own4, host4):
                for number in (1, 2):
                    for sender in (MAC, own_mac, "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"):
                        yield Ether(src=MAC, dst=mac) / \
                            ARP(op=number, hwsrc=sender, psrc=src, hwdst=own_mac, pdst=dst)
            continue
        for source in (MAC, "01:00:5e:00:00:01"):
            for packet in messages(kind, own4, host4, own6, host6):
                yield Ether(src=source, dst=mac) / packet


for line in sys.stdin:
    request = json.loads(line)
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    port.bind((request["interface"], 0))
    count = 0
    for frame in frames(request["kind"], request["mac"], *request["addresses"]):
        port.send(bytes(frame))
        count += 1
    port.close()
    print(count, flush=True)
