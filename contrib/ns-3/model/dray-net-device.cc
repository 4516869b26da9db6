/*
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "dray-net-device.h"

#include "ns3/abort.h"
#include "ns3/boolean.h"
#include "ns3/channel.h"
#include "ns3/ethernet-header.h"
#include "ns3/global-value.h"
#include "ns3/log.h"
#include "ns3/node.h"
#include "ns3/realtime-simulator-impl.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/trace-source-accessor.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace ns3
{

NS_LOG_COMPONENT_DEFINE("DrayNetDevice");

NS_OBJECT_ENSURE_REGISTERED(DrayNetDevice);

using Clock = std::chrono::steady_clock;

namespace
{
/// Length of an Ethernet header.
constexpr uint32_t HEADER = 14;
/// Length of a VLAN tag.
constexpr uint32_t TAG = 4;
/// Length of the shortest frame, without its checksum.
constexpr uint32_t FRAME_MIN = 60;
/// Time after which the port thread looks at the port's state, in milliseconds.
constexpr int PATIENCE = 10;
/// Time without frames after which the port thread sleeps. To wake it takes longer than a packet takes
/// in ns-3, so it must not sleep between two packets.
constexpr std::chrono::microseconds LINGER{50};
/// Longest time for which a closing port transmits the frames that are waiting.
constexpr std::chrono::seconds FLUSH{1};

/**
 * \param n a number
 * \return the next power of two
 */
uint32_t
PowerOfTwo(uint32_t n)
{
    uint32_t power = 1;
    while (power < n)
    {
        power *= 2;
    }
    return power;
}
} // namespace

TypeId
DrayNetDevice::GetTypeId()
{
    static TypeId tid =
        TypeId("ns3::DrayNetDevice")
            .SetParent<NetDevice>()
            .SetGroupName("Dray")
            .AddConstructor<DrayNetDevice>()
            .AddAttribute("Uri",
                          "The port, for example virtio:/run/dray/a.sock.",
                          StringValue("null:"),
                          MakeStringAccessor(&DrayNetDevice::m_uri),
                          MakeStringChecker())
            .AddAttribute("Address",
                          "The MAC address of this device.",
                          Mac48AddressValue(Mac48Address("ff:ff:ff:ff:ff:ff")),
                          MakeMac48AddressAccessor(&DrayNetDevice::m_address),
                          MakeMac48AddressChecker())
            .AddAttribute("Mtu",
                          "Length of the longest payload of a frame, in bytes.",
                          UintegerValue(1500),
                          MakeUintegerAccessor(&DrayNetDevice::SetMtu, &DrayNetDevice::GetMtu),
                          MakeUintegerChecker<uint16_t>(68, DRAY_FRAME_MAX - HEADER - TAG))
            .AddAttribute("Batch",
                          "Maximum number of frames that are transmitted together.",
                          UintegerValue(64),
                          MakeUintegerAccessor(&DrayNetDevice::m_batch),
                          MakeUintegerChecker<uint32_t>(1, DRAY_BATCH_MAX))
            .AddAttribute("RxQueueSize",
                          "Number of received frames, rounded up to a power of two, that may wait "
                          "for the simulator. The others wait in the port.",
                          UintegerValue(1024),
                          MakeUintegerAccessor(&DrayNetDevice::m_rxQueueSize),
                          MakeUintegerChecker<uint32_t>(1, 65536))
            .AddAttribute("TxQueueSize",
                          "Number of frames, rounded up to a power of two, that may wait for the "
                          "port.",
                          UintegerValue(1024),
                          MakeUintegerAccessor(&DrayNetDevice::m_txQueueSize),
                          MakeUintegerChecker<uint32_t>(1, 65536))
            .AddAttribute("TxWait",
                          "Time for which the simulator waits, as it does in the system call of a "
                          "FdNetDevice, if the transmit queue is full. After it the frame is "
                          "dropped.",
                          TimeValue(MilliSeconds(10)),
                          MakeTimeAccessor(&DrayNetDevice::m_txWait),
                          MakeTimeChecker(Seconds(0)))
            .AddAttribute("Start",
                          "The simulation time at which to open the port.",
                          TimeValue(Seconds(0)),
                          MakeTimeAccessor(&DrayNetDevice::m_start),
                          MakeTimeChecker())
            .AddAttribute("Stop",
                          "The simulation time at which to close the port; 0 for its end.",
                          TimeValue(Seconds(0)),
                          MakeTimeAccessor(&DrayNetDevice::m_stop),
                          MakeTimeChecker())
            .AddTraceSource("MacTx",
                            "A packet has arrived for transmission by this device.",
                            MakeTraceSourceAccessor(&DrayNetDevice::m_macTxTrace),
                            "ns3::Packet::TracedCallback")
            .AddTraceSource("MacTxDrop",
                            "A packet has been dropped before transmission: there was no room, it "
                            "exceeds the MTU, or the port is closed.",
                            MakeTraceSourceAccessor(&DrayNetDevice::m_macTxDropTrace),
                            "ns3::Packet::TracedCallback")
            .AddTraceSource("MacPromiscRx",
                            "A packet has been received and is being forwarded up, whatever its "
                            "destination.",
                            MakeTraceSourceAccessor(&DrayNetDevice::m_macPromiscRxTrace),
                            "ns3::Packet::TracedCallback")
            .AddTraceSource("MacRx",
                            "A packet to this device has been received and is being forwarded up.",
                            MakeTraceSourceAccessor(&DrayNetDevice::m_macRxTrace),
                            "ns3::Packet::TracedCallback")
            .AddTraceSource("MacRxDrop",
                            "A packet has been received and is for another host.",
                            MakeTraceSourceAccessor(&DrayNetDevice::m_macRxDropTrace),
                            "ns3::Packet::TracedCallback")
            .AddTraceSource("PhyTxEnd",
                            "A packet has been given to the port thread.",
                            MakeTraceSourceAccessor(&DrayNetDevice::m_phyTxEndTrace),
                            "ns3::Packet::TracedCallback")
            .AddTraceSource("PhyTxDrop",
                            "The transmit queue had no room for a packet.",
                            MakeTraceSourceAccessor(&DrayNetDevice::m_phyTxDropTrace),
                            "ns3::Packet::TracedCallback")
            .AddTraceSource("PhyRxEnd",
                            "A packet has been received from the port thread.",
                            MakeTraceSourceAccessor(&DrayNetDevice::m_phyRxEndTrace),
                            "ns3::Packet::TracedCallback")
            .AddTraceSource("PhyRxDrop",
                            "A packet without a whole header, or longer than the MTU allows, has "
                            "been received and dropped.",
                            MakeTraceSourceAccessor(&DrayNetDevice::m_phyRxDropTrace),
                            "ns3::Packet::TracedCallback")
            .AddTraceSource("Sniffer",
                            "A non-promiscuous packet sniffer attached to the device.",
                            MakeTraceSourceAccessor(&DrayNetDevice::m_snifferTrace),
                            "ns3::Packet::TracedCallback")
            .AddTraceSource("PromiscSniffer",
                            "A promiscuous packet sniffer attached to the device.",
                            MakeTraceSourceAccessor(&DrayNetDevice::m_promiscSnifferTrace),
                            "ns3::Packet::TracedCallback");
    return tid;
}

DrayNetDevice::DrayNetDevice()
{
    NS_LOG_FUNCTION(this);
}

DrayNetDevice::~DrayNetDevice()
{
    NS_LOG_FUNCTION(this);
    Close();
}

void
DrayNetDevice::DoInitialize()
{
    NS_LOG_FUNCTION(this);
    m_startEvent = Simulator::Schedule(m_start, &DrayNetDevice::StartDevice, this);
    if (!m_stop.IsZero())
    {
        m_stopEvent = Simulator::Schedule(m_stop, &DrayNetDevice::Close, this);
    }
    NetDevice::DoInitialize();
}

void
DrayNetDevice::DoDispose()
{
    NS_LOG_FUNCTION(this);
    Simulator::Cancel(m_startEvent);
    Simulator::Cancel(m_stopEvent);
    Simulator::Cancel(m_beginEvent);
    Close();
    m_node = nullptr;
    m_rxCallback.Nullify();
    m_promiscRxCallback.Nullify();
    NetDevice::DoDispose();
}

void
DrayNetDevice::StartDevice()
{
    NS_LOG_FUNCTION(this);
    if (!m_thread.joinable())
    {
        std::string why = Open();
        NS_ABORT_MSG_UNLESS(why.empty(), "DrayNetDevice: " << why);
    }
}

std::string
DrayNetDevice::Open()
{
    NS_LOG_FUNCTION(this);
    if (!DynamicCast<RealtimeSimulatorImpl>(Simulator::GetImplementation()))
    {
        return "SimulatorImplementationType is not ns3::RealtimeSimulatorImpl: frames arrive in "
               "real time";
    }
    BooleanValue checksum;
    GlobalValue::GetValueByName("ChecksumEnabled", checksum);
    if (!checksum.Get())
    {
        NS_LOG_WARN("ChecksumEnabled is false: other hosts than ns-3 drop these packets");
    }
    m_received = std::make_unique<FrameRing>(PowerOfTwo(m_rxQueueSize), m_mtu + HEADER + TAG);
    m_transmitted = std::make_unique<FrameRing>(PowerOfTwo(m_txQueueSize),
                                                std::max(m_mtu + HEADER + TAG, FRAME_MIN));
    m_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m_wake < 0)
    {
        return std::string("eventfd: ") + std::strerror(errno);
    }
    m_closing = false;
    m_begun = false;
    std::promise<std::string> opened;
    std::future<std::string> result = opened.get_future();
    m_thread = std::thread(&DrayNetDevice::RunPort, this, std::move(opened));
    std::string why = result.get();
    if (!why.empty())
    {
        Close();
        return why;
    }
    m_beginEvent = Simulator::ScheduleNow(&DrayNetDevice::Begin, this);
    return why;
}

void
DrayNetDevice::Begin()
{
    m_begun = true;
}

void
DrayNetDevice::Close()
{
    NS_LOG_FUNCTION(this);
    if (m_thread.joinable())
    {
        m_closing = true;
        Wake();
        m_thread.join();
        NotifyLink(false);
    }
    if (m_wake >= 0)
    {
        close(m_wake);
        m_wake = -1;
    }
}

dray_facts
DrayNetDevice::GetPortFacts() const
{
    return m_facts;
}

void
DrayNetDevice::RunPort(std::promise<std::string> opened)
{
    dray_port port;
    dray_facts facts{};
    if (dray_open(m_uri.c_str(), &port) < 0 || dray_get_facts(port, &facts) < 0)
    {
        opened.set_value(dray_error());
        return;
    }
    if (facts.frame_max < m_mtu + HEADER)
    {
        opened.set_value("port " + m_uri + " has frames of " + std::to_string(facts.frame_max) +
                         " bytes: Mtu " + std::to_string(m_mtu) + " is too long, allowed is " +
                         std::to_string(facts.frame_max - HEADER));
        dray_close(port);
        return;
    }
    m_open = true;
    opened.set_value("");
    while (!m_begun && !m_closing)
    {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    bool running = false;
    int failed = 0;
    Clock::time_point looked{};
    Clock::time_point worked{};
    Clock::time_point flushUntil{};
    while (failed == 0)
    {
        const int received = m_closing ? 0 : dray_receive(port, Take, this);
        const int transmitted = Transmit(port);
        failed = std::min({0, received, transmitted});
        const Clock::time_point now = Clock::now();
        const bool idle = received == 0 && transmitted == 0;
        if (idle || now - looked > std::chrono::milliseconds(PATIENCE))
        {
            looked = now;
            failed = std::min(failed, dray_get_facts(port, &facts));
            if (running != (facts.running != 0))
            {
                running = !running;
                Simulator::ScheduleWithContext(m_nodeId,
                                               Time(0),
                                               &DrayNetDevice::NotifyLink,
                                               this,
                                               running);
            }
        }
        if (m_closing)
        {
            flushUntil = flushUntil == Clock::time_point{} ? now + FLUSH : flushUntil;
            const bool done = m_transmitted->GetCount() == 0 && facts.pending == 0;
            if (idle && (done || !running || now > flushUntil))
            {
                break;
            }
            sched_yield();
        }
        else if (!idle)
        {
            worked = now;
        }
        else if (now - worked < LINGER || m_transmitted->GetCount() > 0)
        {
            // The simulator, or the peer of a full port, may need this CPU.
            sched_yield();
        }
        else if (failed == 0)
        {
            failed = Sleep(port);
        }
    }
    m_open = false;
    if (failed < 0)
    {
        NS_LOG_UNCOND("DrayNetDevice: " << dray_error());
        Simulator::ScheduleWithContext(m_nodeId,
                                       Time(0),
                                       &DrayNetDevice::NotifyLink,
                                       this,
                                       false);
    }
    dray_get_facts(port, &m_facts);
    dray_close(port);
}

int
DrayNetDevice::Transmit(dray_port port)
{
    dray_frame frames[DRAY_BATCH_MAX];
    const uint32_t count = std::min(m_transmitted->GetCount(), m_batch);
    for (uint32_t i = 0; i < count; i++)
    {
        frames[i] = {m_transmitted->GetFrame(i), m_transmitted->GetLength(i)};
    }
    const int taken = count == 0 ? 0 : dray_transmit(port, frames, count);
    if (taken > 0)
    {
        m_transmitted->Release(taken);
    }
    return taken;
}

int
DrayNetDevice::Sleep(dray_port port)
{
    m_sleeps = true;
    // A frame that was written before the writer could see m_sleeps.
    const bool full = m_received->GetRoom() == 0;
    int there = m_transmitted->GetCount() > 0 || m_closing;
    if (there == 0 && !full)
    {
        there = dray_arm(port, true);
    }
    if (there == 0)
    {
        // While the simulator has no room, frames wait in the port.
        pollfd fds[2] = {{m_wake, POLLIN, 0}, {full ? -1 : dray_event(port), POLLIN, 0}};
        poll(fds, 2, full ? 1 : PATIENCE);
        uint64_t events;
        [[maybe_unused]] ssize_t count = read(m_wake, &events, sizeof events);
    }
    m_sleeps = false;
    const int disarmed = full ? 0 : dray_arm(port, false);
    return std::min({0, there, disarmed});
}

void
DrayNetDevice::Wake()
{
    if (m_sleeps.exchange(false))
    {
        const uint64_t one = 1;
        [[maybe_unused]] ssize_t count = write(m_wake, &one, sizeof one);
    }
}

size_t
DrayNetDevice::Take(void* context, const dray_frame* frames, size_t count)
{
    auto device = static_cast<DrayNetDevice*>(context);
    FrameRing& ring = *device->m_received;
    const uint32_t taken = std::min<size_t>(count, ring.GetRoom());
    for (uint32_t i = 0; i < taken; i++)
    {
        std::memcpy(ring.GetFree(i), frames[i].data, std::min(frames[i].len, ring.GetBytes()));
        ring.SetLength(i, frames[i].len);
    }
    ring.Publish(taken);
    if (taken > 0 && !device->m_scheduled.exchange(true))
    {
        Simulator::ScheduleWithContext(device->m_nodeId,
                                       Time(0),
                                       &DrayNetDevice::ForwardUp,
                                       device);
    }
    return taken;
}

void
DrayNetDevice::ForwardUp()
{
    NS_LOG_FUNCTION(this);
    // Frames that are published from here on get an event of their own.
    m_scheduled = false;
    const uint32_t count = m_received->GetCount();
    for (uint32_t i = 0; i < count; i++)
    {
        Deliver(m_received->GetFrame(0), m_received->GetLength(0));
        m_received->Release(1);
    }
}

bool
DrayNetDevice::IsTraced() const
{
    return !(m_phyRxEndTrace.IsEmpty() && m_macPromiscRxTrace.IsEmpty() &&
             m_macRxTrace.IsEmpty() && m_macRxDropTrace.IsEmpty() && m_snifferTrace.IsEmpty() &&
             m_promiscSnifferTrace.IsEmpty());
}

void
DrayNetDevice::Deliver(const uint8_t* frame, uint32_t length)
{
    if (length < HEADER || length > m_received->GetBytes())
    {
        m_phyRxDropTrace(Create<Packet>(frame, std::min(length, m_received->GetBytes())));
        return;
    }
    // Trace sinks expect the whole frame; without one it is not made.
    Ptr<Packet> whole = IsTraced() ? Create<Packet>(frame, length) : nullptr;
    Ptr<Packet> packet = Create<Packet>(frame + HEADER, length - HEADER);
    Mac48Address destination;
    Mac48Address source;
    destination.CopyFrom(frame);
    source.CopyFrom(frame + 6);
    const uint16_t protocol = frame[12] << 8 | frame[13];
    PacketType type = NS3_PACKET_OTHERHOST;
    if (destination.IsBroadcast())
    {
        type = NS3_PACKET_BROADCAST;
    }
    else if (destination.IsGroup())
    {
        type = NS3_PACKET_MULTICAST;
    }
    else if (destination == m_address)
    {
        type = NS3_PACKET_HOST;
    }
    if (whole)
    {
        m_phyRxEndTrace(whole);
        m_promiscSnifferTrace(whole);
    }
    if (!m_promiscRxCallback.IsNull())
    {
        if (whole)
        {
            m_macPromiscRxTrace(whole);
        }
        m_promiscRxCallback(this, packet, protocol, source, destination, type);
    }
    if (type == NS3_PACKET_OTHERHOST)
    {
        if (whole)
        {
            m_macRxDropTrace(whole);
        }
        return;
    }
    if (whole)
    {
        m_snifferTrace(whole);
        m_macRxTrace(whole);
    }
    m_rxCallback(this, packet, protocol, source);
}

bool
DrayNetDevice::Send(Ptr<Packet> packet, const Address& dest, uint16_t protocolNumber)
{
    return SendFrom(packet, m_address, dest, protocolNumber);
}

bool
DrayNetDevice::SendFrom(Ptr<Packet> packet,
                        const Address& src,
                        const Address& dest,
                        uint16_t protocolNumber)
{
    NS_LOG_FUNCTION(this << packet << src << dest << protocolNumber);
    const Mac48Address source = Mac48Address::ConvertFrom(src);
    const Mac48Address destination = Mac48Address::ConvertFrom(dest);
    const bool traced = !(m_macTxTrace.IsEmpty() && m_phyTxEndTrace.IsEmpty() &&
                          m_snifferTrace.IsEmpty() && m_promiscSnifferTrace.IsEmpty());
    const uint32_t size = packet->GetSize();
    Ptr<Packet> whole = packet;
    if (traced)
    {
        EthernetHeader header(false);
        header.SetSource(source);
        header.SetDestination(destination);
        header.SetLengthType(protocolNumber);
        whole = packet->Copy();
        whole->AddHeader(header);
        m_macTxTrace(whole);
    }
    if (!m_open || size > m_mtu)
    {
        m_macTxDropTrace(whole);
        return false;
    }
    if (m_transmitted->GetRoom() == 0)
    {
        const auto until = Clock::now() + std::chrono::nanoseconds(m_txWait.GetNanoSeconds());
        while (m_transmitted->GetRoom() == 0 && m_open && Clock::now() < until)
        {
            Wake();
            sched_yield();
        }
    }
    if (m_transmitted->GetRoom() == 0)
    {
        m_phyTxDropTrace(whole);
        m_macTxDropTrace(whole);
        return false;
    }
    uint8_t* frame = m_transmitted->GetFree(0);
    destination.CopyTo(frame);
    source.CopyTo(frame + 6);
    frame[12] = protocolNumber >> 8;
    frame[13] = protocolNumber & 0xff;
    packet->CopyData(frame + HEADER, size);
    uint32_t length = HEADER + size;
    if (length < FRAME_MIN)
    {
        std::memset(frame + length, 0, FRAME_MIN - length);
        length = FRAME_MIN;
    }
    m_transmitted->SetLength(0, length);
    m_transmitted->Publish(1);
    Wake();
    if (traced)
    {
        m_promiscSnifferTrace(whole);
        m_snifferTrace(whole);
        m_phyTxEndTrace(whole);
    }
    return true;
}

void
DrayNetDevice::NotifyLink(bool up)
{
    NS_LOG_FUNCTION(this << up);
    up = up && m_open;
    if (m_linkUp != up)
    {
        m_linkUp = up;
        m_linkChangeCallbacks();
    }
}

bool
DrayNetDevice::SetMtu(const uint16_t mtu)
{
    // The slots of an open port have the length of its frames.
    if (m_thread.joinable() && mtu > m_mtu)
    {
        return false;
    }
    m_mtu = mtu;
    return true;
}

uint16_t
DrayNetDevice::GetMtu() const
{
    return m_mtu;
}

void
DrayNetDevice::SetIfIndex(const uint32_t index)
{
    m_ifIndex = index;
}

uint32_t
DrayNetDevice::GetIfIndex() const
{
    return m_ifIndex;
}

Ptr<Channel>
DrayNetDevice::GetChannel() const
{
    return nullptr;
}

void
DrayNetDevice::SetAddress(Address address)
{
    m_address = Mac48Address::ConvertFrom(address);
}

Address
DrayNetDevice::GetAddress() const
{
    return m_address;
}

bool
DrayNetDevice::IsLinkUp() const
{
    return m_linkUp;
}

void
DrayNetDevice::AddLinkChangeCallback(Callback<void> callback)
{
    m_linkChangeCallbacks.ConnectWithoutContext(callback);
}

bool
DrayNetDevice::IsBroadcast() const
{
    return true;
}

Address
DrayNetDevice::GetBroadcast() const
{
    return Mac48Address::GetBroadcast();
}

bool
DrayNetDevice::IsMulticast() const
{
    return true;
}

Address
DrayNetDevice::GetMulticast(Ipv4Address multicastGroup) const
{
    return Mac48Address::GetMulticast(multicastGroup);
}

Address
DrayNetDevice::GetMulticast(Ipv6Address addr) const
{
    return Mac48Address::GetMulticast(addr);
}

bool
DrayNetDevice::IsPointToPoint() const
{
    return false;
}

bool
DrayNetDevice::IsBridge() const
{
    return false;
}

Ptr<Node>
DrayNetDevice::GetNode() const
{
    return m_node;
}

void
DrayNetDevice::SetNode(Ptr<Node> node)
{
    m_node = node;
    m_nodeId = node->GetId();
}

bool
DrayNetDevice::NeedsArp() const
{
    return true;
}

void
DrayNetDevice::SetReceiveCallback(NetDevice::ReceiveCallback cb)
{
    m_rxCallback = cb;
}

void
DrayNetDevice::SetPromiscReceiveCallback(NetDevice::PromiscReceiveCallback cb)
{
    m_promiscRxCallback = cb;
}

bool
DrayNetDevice::SupportsSendFrom() const
{
    return true;
}

} // namespace ns3
