"""Builds frames with scapy, and parses dray's frames with it. Each input line is a request, each
output line its reply; frames are in hexadecimal."""
import json
import logging
import sys

logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.contrib.gtp import GTP_U_Header, GTP_UDPPort_ExtensionHeader, GTPErrorIndication, \
    GTPPDUSessionContainer
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether


def build(request):
    outer = IP(src="10.0.3.2", dst="10.0.3.1") if request["outer"] == 4 else \
        IPv6(src="fd00:3::2", dst="fd00:3::1")
    inner = IP(src="10.45.0.1", dst="203.0.113.9") if request["inner"] == 4 else \
        IPv6(src="2001:db8:1::5", dst="2001:db8:ff::1")
    fields = {"teid": 1, "gtp_type": 255}
    for flag in ("S", "PN", "E"):
        fields[flag] = int(request[flag])
    header = GTP_U_Header(**fields)
    if request["E"]:
        header = header / GTPPDUSessionContainer(type=1, QFI=9)
    inner = inner / UDP(sport=5000, dport=80) / (b"x" * request["len"])
    frame = Ether(src="02:00:00:00:03:02", dst="02:00:00:00:03:01") / outer / \
        UDP(sport=2152, dport=2152) / header / inner
    return {"frame": bytes(frame).hex(), "inner": bytes(inner).hex()}


def read(request):
    frame = Ether(bytes.fromhex(request["frame"]))
    answer = {"layers": [layer.__name__ for layer in frame.layers()]}
    header = frame[GTP_U_Header]
    answer.update(teid=header.teid, type=header.gtp_type, length=header.length)
    if GTPPDUSessionContainer in frame:
        container = frame[GTPPDUSessionContainer]
        answer.update(pdu=container.type, qfi=container.QFI)
        answer["inner"] = bytes(container.payload).hex()
    if GTP_UDPPort_ExtensionHeader in frame:
        # scapy does not parse the bytes after this extension header.
        elements = bytes(frame[GTP_UDPPort_ExtensionHeader].payload)
        for element in GTPErrorIndication(elements).IE_list:
            answer[type(element).__name__] = getattr(element, "TEIDI", None) or \
                getattr(element, "address", None)
    # Rebuilding the frame gives the same lengths and checksums.
    again = frame.copy()
    for layer in (IP, UDP):
        for field in ("len", "chksum"):
            if layer in again and not (layer is UDP and field == "chksum"):
                delattr(again[layer], field)
    answer["same"] = bytes(again) == bytes(frame)
    return answer


for line in sys.stdin:
    request = json.loads(line)
    answer = build(request) if "outer" in request else read(request)
    print(json.dumps(answer), flush=True)
