/*
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * One end of a path between two simulations: a node with one device, and an application that sends
 * UDP packets (OnOffApplication) or receives them (PacketSink). With --layer=device, the packets
 * bypass the stack: what is left is the cost of simulator and device.
 *
 * It prints "open", "ready" when its link is up, and once per interval
 *
 *     sample NANOSECONDS PACKETS USER SYSTEM
 *
 * (monotonic clock, packets so far, CPU time in nanoseconds); its last line is an object of JSON.
 * SIGUSR1 starts a sender with --paused, SIGINT and SIGTERM end it.
 */
#include "../helper/dray-net-device-helper.h"
#include "../model/dray-net-device.h"

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/fd-net-device-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/realtime-simulator-impl.h"

#include <arpa/inet.h>
#include <atomic>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>

using namespace ns3;

namespace
{

/// Length of the headers of Ethernet, IPv4 and UDP.
constexpr uint32_t HEADERS = 14 + 20 + 8;

struct Options
{
    std::string port;
    std::string role{"receiver"};
    std::string layer{"udp"};
    std::string mac{"02:00:00:00:00:01"};
    std::string peerMac{"02:00:00:00:00:02"};
    std::string address{"198.18.0.1"};
    std::string peer{"198.18.0.2"};
    uint16_t sourcePort{9000};
    uint16_t destinationPort{9000};
    uint32_t size{64};
    uint32_t mtu{1500};
    uint32_t batch{64};
    double rate{0};
    uint64_t count{0};
    double duration{0};
    double interval{1};
    std::string pcap;
    bool paused{false};
    bool Sends() const
    {
        return role == "sender";
    }
};

Options g_options;
std::atomic<uint64_t> g_packets{0}; //!< packets sent or received
std::atomic<uint64_t> g_dropped{0}; //!< packets that the device did not take
std::atomic<uint64_t> g_startNs{0}; //!< time of the first packet
std::atomic<uint64_t> g_endNs{0};   //!< time of the last packet of a sender that is done
std::atomic<bool> g_stop{false};

uint64_t
MonotonicNs()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

[[noreturn]] void
Fail(const std::string& why)
{
    fprintf(stderr, "dray-ns3: %s\n", why.c_str());
    _exit(1);
}

void
CountPacket()
{
    // Only the simulator's thread writes.
    const uint64_t packets = g_packets.load(std::memory_order_relaxed);
    if (packets == 0)
    {
        g_startNs.store(MonotonicNs(), std::memory_order_relaxed);
    }
    g_packets.store(packets + 1, std::memory_order_relaxed);
}

void
CountRx(Ptr<const Packet>, const Address&)
{
    CountPacket();
}

void
CountTx(Ptr<const Packet>)
{
    CountPacket();
    if (g_packets.load(std::memory_order_relaxed) == g_options.count)
    {
        g_endNs = MonotonicNs();
        Simulator::Stop();
    }
}

void
CountDrop(Ptr<const Packet>)
{
    g_dropped.fetch_add(1, std::memory_order_relaxed);
}

bool
CountFrame(Ptr<NetDevice>, Ptr<const Packet>, uint16_t protocol, const Address&)
{
    if (protocol == Ipv4L3Protocol::PROT_NUMBER)
    {
        CountPacket();
    }
    return true;
}

/// Opens a packet socket, as ns-3's EmuFdNetDeviceHelper does through a program of its own.
int
OpenPacketSocket(const std::string& name)
{
    const unsigned index = if_nametoindex(name.c_str());
    const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
    sockaddr_ll here{};
    here.sll_family = AF_PACKET;
    here.sll_protocol = htons(ETH_P_ALL);
    here.sll_ifindex = static_cast<int>(index);
    packet_mreq promiscuous{};
    promiscuous.mr_ifindex = here.sll_ifindex;
    promiscuous.mr_type = PACKET_MR_PROMISC;
    if (index == 0 || fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&here), sizeof here) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) < 0)
    {
        Fail("fd:" + name + ": " + std::strerror(errno));
    }
    return fd;
}

/// Sends packets that a stack made before: a batch of them in each event.
class DeviceSource
{
  public:
    DeviceSource(Ptr<NetDevice> device, Ptr<Packet> packet)
        : m_device(device),
          m_packet(packet),
          m_peer(Mac48Address(g_options.peerMac.c_str())),
          m_pause(g_options.rate > 0 ? Seconds(g_options.batch / g_options.rate) : NanoSeconds(1))
    {
    }

    void Send()
    {
        for (uint32_t i = 0; i < g_options.batch; i++)
        {
            m_device->Send(m_packet->Copy(), m_peer, Ipv4L3Protocol::PROT_NUMBER);
            CountTx(m_packet);
            if (g_packets == g_options.count)
            {
                return;
            }
        }
        Simulator::Schedule(m_pause, &DeviceSource::Send, this);
    }

  private:
    Ptr<NetDevice> m_device;
    Ptr<Packet> m_packet;
    Mac48Address m_peer;
    Time m_pause;
};

/// \return a packet as the stack would make it
Ptr<Packet>
MakePacket()
{
    auto packet = Create<Packet>(g_options.size - HEADERS);
    const Ipv4Address from(g_options.address.c_str());
    const Ipv4Address to(g_options.peer.c_str());
    UdpHeader udp;
    udp.EnableChecksums();
    udp.InitializeChecksum(from, to, UdpL4Protocol::PROT_NUMBER);
    udp.SetSourcePort(g_options.sourcePort);
    udp.SetDestinationPort(g_options.destinationPort);
    packet->AddHeader(udp);
    Ipv4Header ip;
    ip.EnableChecksum();
    ip.SetSource(from);
    ip.SetDestination(to);
    ip.SetProtocol(UdpL4Protocol::PROT_NUMBER);
    ip.SetTtl(64);
    ip.SetPayloadSize(packet->GetSize());
    packet->AddHeader(ip);
    return packet;
}

/// Gives the node a stack and an application. \return the function that starts to send.
std::function<void()>
InstallUdp(Ptr<Node> node, Ptr<NetDevice> device)
{
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(node);
    auto ipv4 = node->GetObject<Ipv4>();
    const uint32_t interface = ipv4->AddInterface(device);
    ipv4->AddAddress(interface, {g_options.address.c_str(), "255.254.0.0"});
    ipv4->SetUp(interface);
    const Ipv4Address peer(g_options.peer.c_str());
    device->AddLinkChangeCallback(Callback<void>([ipv4, interface, peer] {
        // No frame but the measured ones. A change of the link has emptied the cache.
        auto arp = ipv4->GetObject<Ipv4L3Protocol>()->GetInterface(interface)->GetArpCache();
        arp->Flush();
        ArpCache::Entry* entry = arp->Add(peer);
        entry->SetMacAddress(Mac48Address(g_options.peerMac.c_str()));
        entry->MarkPermanent();
    }));
    if (!g_options.Sends())
    {
        PacketSinkHelper sink("ns3::UdpSocketFactory",
                              InetSocketAddress(Ipv4Address::GetAny(), g_options.destinationPort));
        auto app = sink.Install(node).Get(0);
        app->TraceConnectWithoutContext("Rx", MakeCallback(&CountRx));
        return [] {};
    }
    const uint32_t payload = g_options.size - HEADERS;
    // Without a rate, a packet is due in each nanosecond, so that the simulator is always late.
    const double rate = g_options.rate > 0 ? g_options.rate : 1e9;
    OnOffHelper onOff("ns3::UdpSocketFactory", InetSocketAddress(peer, g_options.destinationPort));
    onOff.SetAttribute(
        "Local",
        AddressValue(InetSocketAddress(g_options.address.c_str(), g_options.sourcePort)));
    onOff.SetAttribute("PacketSize", UintegerValue(payload));
    onOff.SetAttribute("DataRate", DataRateValue(DataRate(rate * payload * 8)));
    onOff.SetAttribute("OnTime", StringValue("ns3::ConstantRandomVariable[Constant=1e6]"));
    onOff.SetAttribute("OffTime", StringValue("ns3::ConstantRandomVariable[Constant=0]"));
    return [node, onOff]() mutable {
        auto app = onOff.Install(node).Get(0);
        app->TraceConnectWithoutContext("Tx", MakeCallback(&CountTx));
    };
}

/// Sends or counts packets at the device. \return the function that starts to send.
std::function<void()>
InstallDevice(Ptr<NetDevice> device)
{
    if (!g_options.Sends())
    {
        device->SetReceiveCallback(MakeCallback(&CountFrame));
        return [] {};
    }
    auto source = std::make_shared<DeviceSource>(device, MakePacket());
    return [source] { source->Send(); };
}

/// Writes the packets of a device to the file that was named.
void
EnablePcap(PcapHelperForDevice& helper, Ptr<NetDevice> device)
{
    if (!g_options.pcap.empty())
    {
        helper.EnablePcap(g_options.pcap, device, true, true);
    }
}

void
PrintSample(uint64_t at)
{
    rusage use;
    getrusage(RUSAGE_SELF, &use);
    const auto ns = [](timeval t) { return t.tv_sec * 1000000000ULL + t.tv_usec * 1000ULL; };
    printf("sample %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
           at,
           g_packets.load(),
           static_cast<uint64_t>(ns(use.ru_utime)),
           static_cast<uint64_t>(ns(use.ru_stime)));
    fflush(stdout);
}

/// Body of the thread that handles signals and prints samples, until g_stop.
void
Attend(sigset_t signals, uint32_t node, std::function<void()> start)
{
    const uint64_t interval = g_options.interval * 1e9;
    uint64_t next = (MonotonicNs() / interval + 1) * interval;
    const auto end = [node] {
        // A simulator that is late would run an event only when it has caught up.
        Simulator::Stop();
        Simulator::ScheduleWithContext(node, Time(0), [] {});
    };
    while (!g_stop)
    {
        const uint64_t now = MonotonicNs();
        if (now >= next)
        {
            PrintSample(now);
            next += interval;
        }
        const uint64_t started = g_startNs;
        if (g_options.duration > 0 && started > 0 && now - started > g_options.duration * 1e9)
        {
            end();
        }
        const uint64_t wait = std::min<uint64_t>(next > now ? next - now : 0, 10000000);
        const timespec time{0, static_cast<long>(wait)};
        const int signal = sigtimedwait(&signals, nullptr, &time);
        if (signal == SIGUSR1)
        {
            Simulator::ScheduleWithContext(node, Time(0), [start] { start(); });
        }
        else if (signal > 0)
        {
            end();
        }
    }
}

} // namespace

int
main(int argc, char* argv[])
{
    Options& o = g_options;
    CommandLine cmd(__FILE__);
    cmd.Usage("One end of a path between two simulations.");
    cmd.AddValue("port", "URI of the port, or fd:INTERFACE for ns-3's FdNetDevice", o.port);
    cmd.AddValue("role", "sender or receiver", o.role);
    cmd.AddValue("layer", "udp: UDP packets of applications; device: bypass the stack", o.layer);
    cmd.AddValue("mac", "MAC address of this end", o.mac);
    cmd.AddValue("peerMac", "MAC address of the other end", o.peerMac);
    cmd.AddValue("address", "IPv4 address of this end", o.address);
    cmd.AddValue("peer", "IPv4 address of the other end", o.peer);
    cmd.AddValue("sourcePort", "UDP port of the sender", o.sourcePort);
    cmd.AddValue("destinationPort", "UDP port of the receiver", o.destinationPort);
    cmd.AddValue("size", "length of a frame in bytes, without its checksum", o.size);
    cmd.AddValue("mtu", "longest payload of a frame in bytes", o.mtu);
    cmd.AddValue("batch", "maximum number of frames per batch", o.batch);
    cmd.AddValue("rate", "packets per second; 0 for as many as possible", o.rate);
    cmd.AddValue("count", "number of packets to send; 0 for no limit", o.count);
    cmd.AddValue("duration", "seconds from the first packet to the end; 0 for no limit", o.duration);
    cmd.AddValue("interval", "seconds between two samples", o.interval);
    cmd.AddValue("pcap", "file to which the packets are written", o.pcap);
    cmd.AddValue("paused", "send only after SIGUSR1", o.paused);
    cmd.Parse(argc, argv);
    if (o.port.empty() || (o.role != "sender" && o.role != "receiver") ||
        (o.layer != "udp" && o.layer != "device") || o.size < 60 || o.size > o.mtu + 14 ||
        o.batch < 1 || o.batch > DRAY_BATCH_MAX || !(o.rate >= 0) || !(o.duration >= 0) ||
        !(o.interval >= 0.001))
    {
        fprintf(stderr,
                "dray-ns3: give --port, --role=sender or receiver, --layer=udp or device, --size "
                "from 60 to MTU + 14, --batch from 1 to %d, --rate and --duration from 0, --interval "
                "from 0.001; --help explains them\n",
                DRAY_BATCH_MAX);
        return 2;
    }

    // The threads that are started from here on leave these signals to the last one.
    sigset_t signals;
    sigemptyset(&signals);
    for (int signal : {SIGINT, SIGTERM, SIGUSR1})
    {
        sigaddset(&signals, signal);
    }
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);

    GlobalValue::Bind("SimulatorImplementationType", StringValue("ns3::RealtimeSimulatorImpl"));
    GlobalValue::Bind("ChecksumEnabled", BooleanValue(true));
    auto node = CreateObject<Node>();
    Ptr<NetDevice> device;
    int fd = -1;
    if (o.port.rfind("fd:", 0) == 0)
    {
        FdNetDeviceHelper helper;
        device = helper.Install(node).Get(0);
        EnablePcap(helper, device);
        fd = OpenPacketSocket(o.port.substr(3));
        DynamicCast<FdNetDevice>(device)->SetFileDescriptor(fd);
    }
    else
    {
        DrayNetDeviceHelper helper(o.port);
        helper.SetAttribute("Batch", UintegerValue(o.batch));
        device = helper.Install(node).Get(0);
        EnablePcap(helper, device);
    }
    device->SetAddress(Mac48Address(o.mac.c_str()));
    device->SetMtu(o.mtu);
    device->TraceConnectWithoutContext("MacTxDrop", MakeCallback(&CountDrop));

    const auto start = o.layer == "udp" ? InstallUdp(node, device) : InstallDevice(device);
    auto drayDevice = DynamicCast<DrayNetDevice>(device);
    if (drayDevice)
    {
        const std::string why = drayDevice->Open();
        if (!why.empty())
        {
            Fail(why);
        }
    }
    printf("open\n");
    fflush(stdout);
    bool ready = false;
    device->AddLinkChangeCallback(Callback<void>([&] {
        if (!device->IsLinkUp() || ready)
        {
            return;
        }
        ready = true;
        printf("ready\n");
        fflush(stdout);
        if (!o.paused)
        {
            Simulator::ScheduleNow([start] { start(); });
        }
    }));
    // What another thread schedules before the simulator runs may never run.
    std::thread attendant;
    Simulator::ScheduleNow([&] { attendant = std::thread(Attend, signals, node->GetId(), start); });
    Simulator::Run();

    const uint64_t ended = g_endNs > 0 ? g_endNs.load() : MonotonicNs();
    g_stop = true;
    attendant.join();
    uint64_t lost = 0;
    uint64_t rejected = 0;
    if (drayDevice)
    {
        drayDevice->Close();
        const dray_facts facts = drayDevice->GetPortFacts();
        lost = facts.receive_dropped;
        rejected = facts.transmit_dropped + facts.refused + facts.pending;
    }
    else if (fd >= 0)
    {
        tpacket_stats stats{};
        socklen_t length = sizeof stats;
        getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length);
        lost = stats.tp_drops;
    }
    const uint64_t packets = g_packets;
    const double seconds = g_startNs > 0 ? (ended - g_startNs) / 1e9 : 0;
    PrintSample(MonotonicNs());
    // "dropped": by the device, before they left; "port_dropped": at the port, on the way in or out.
    printf("{\"role\": \"%s\", \"sent\": %" PRIu64 ", \"received\": %" PRIu64
           ", \"bytes\": %" PRIu64 ", \"seconds\": %.6f, \"dropped\": %" PRIu64
           ", \"port_dropped\": %" PRIu64 "}\n",
           o.role.c_str(),
           o.Sends() ? packets - g_dropped : 0,
           o.Sends() ? 0 : packets,
           (packets - (o.Sends() ? g_dropped.load() : 0)) * o.size,
           seconds,
           g_dropped.load(),
           o.Sends() ? rejected : lost);
    fflush(stdout);
    Simulator::Destroy();
    return 0;
}
