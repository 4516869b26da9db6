/*
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef DRAY_NET_DEVICE_H
#define DRAY_NET_DEVICE_H

#include "frame-ring.h"

#include "ns3/event-id.h"
#include "ns3/mac48-address.h"
#include "ns3/net-device.h"
#include "ns3/nstime.h"
#include "ns3/packet.h"
#include "ns3/traced-callback.h"

#include <dray.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>

namespace ns3
{

/**
 * \brief A NetDevice whose frames pass through a port of dray.
 *
 * The port is named by its URI: `virtio:/run/dray/a.sock`, `memif:/run/vpp/memif.sock`,
 * `netmap:vale0:a`, `raw:eth0`. One thread, the port thread, opens it, receives and transmits. It
 * passes received frames to the simulator in batches, one event for each, and takes the frames that
 * the simulator transmits in batches as well.
 *
 * It needs the real-time simulator, and `ChecksumEnabled` unless the other end is ns-3 as well.
 */
class DrayNetDevice : public NetDevice
{
  public:
    /// \return the object TypeId
    static TypeId GetTypeId();

    DrayNetDevice();
    ~DrayNetDevice() override;

    // Delete copy constructor and assignment operator to avoid misuse
    DrayNetDevice(const DrayNetDevice&) = delete;
    DrayNetDevice& operator=(const DrayNetDevice&) = delete;

    /**
     * Open the port. The device does this at its start time, unless it is done before; a port that
     * cannot be opened then ends the simulation.
     *
     * \return the reason why the port cannot be opened; empty if it is open
     */
    std::string Open();

    /// Transmit the frames that are waiting, for at most one second, and close the port.
    void Close();

    /// \return facts about the port and its counters, as they were when it was closed
    dray_facts GetPortFacts() const;

    // inherited from NetDevice base class.
    void SetIfIndex(const uint32_t index) override;
    uint32_t GetIfIndex() const override;
    Ptr<Channel> GetChannel() const override;
    void SetAddress(Address address) override;
    Address GetAddress() const override;
    bool SetMtu(const uint16_t mtu) override;
    uint16_t GetMtu() const override;
    bool IsLinkUp() const override;
    void AddLinkChangeCallback(Callback<void> callback) override;
    bool IsBroadcast() const override;
    Address GetBroadcast() const override;
    bool IsMulticast() const override;
    Address GetMulticast(Ipv4Address multicastGroup) const override;
    Address GetMulticast(Ipv6Address addr) const override;
    bool IsPointToPoint() const override;
    bool IsBridge() const override;
    bool Send(Ptr<Packet> packet, const Address& dest, uint16_t protocolNumber) override;
    bool SendFrom(Ptr<Packet> packet,
                  const Address& source,
                  const Address& dest,
                  uint16_t protocolNumber) override;
    Ptr<Node> GetNode() const override;
    void SetNode(Ptr<Node> node) override;
    bool NeedsArp() const override;
    void SetReceiveCallback(NetDevice::ReceiveCallback cb) override;
    void SetPromiscReceiveCallback(NetDevice::PromiscReceiveCallback cb) override;
    bool SupportsSendFrom() const override;

  protected:
    void DoInitialize() override;
    void DoDispose() override;

  private:
    /// Open the port at the start time.
    void StartDevice();

    /**
     * Let the port thread schedule events. Before the simulator runs, and for a moment when it
     * starts, its real-time clock has no origin: what another thread schedules then may never run.
     */
    void Begin();

    /**
     * Body of the port thread.
     *
     * \param opened takes the reason why the port cannot be opened
     */
    void RunPort(std::promise<std::string> opened);

    /**
     * Transmit waiting frames.
     *
     * \param port the port
     * \return the number of frames, or an error
     */
    int Transmit(dray_port port);

    /**
     * Sleep until the port or the simulator has a frame.
     *
     * \param port the port
     * \return an error, or 0
     */
    int Sleep(dray_port port);

    /// Wake the port thread if it sleeps.
    void Wake();

    /**
     * Copy frames that the port lends to the ring of received ones.
     *
     * \param context the device
     * \param frames the frames
     * \param count their number
     * \return the number of frames that were copied
     */
    static size_t Take(void* context, const dray_frame* frames, size_t count);

    /// Pass received frames to the stack.
    void ForwardUp();

    /**
     * Pass a received frame to the stack.
     *
     * \param frame its bytes
     * \param length its length
     */
    void Deliver(const uint8_t* frame, uint32_t length);

    /**
     * Tell the users of the device that its peer connected or disconnected.
     *
     * \param up true if it connected
     */
    void NotifyLink(bool up);

    /// \return true if a trace source of received frames is connected
    bool IsTraced() const;

    Ptr<Node> m_node;                               //!< node of the device
    uint32_t m_nodeId{0};                           //!< its number, for the port thread
    uint32_t m_ifIndex{0};                          //!< number of the device in its node
    Mac48Address m_address;                         //!< MAC address
    uint16_t m_mtu{1500};                           //!< longest payload of a frame
    std::string m_uri;                              //!< URI of the port
    uint32_t m_batch{64};                           //!< longest batch to transmit
    uint32_t m_rxQueueSize{1024};                   //!< slots of m_received
    uint32_t m_txQueueSize{1024};                   //!< slots of m_transmitted
    Time m_txWait;                                  //!< longest wait for a free slot
    Time m_start;                                   //!< time to open the port
    Time m_stop;                                    //!< time to close it; zero for never
    EventId m_startEvent;                           //!< event that opens the port
    EventId m_stopEvent;                            //!< event that closes it
    EventId m_beginEvent;                           //!< event that lets the port thread begin
    std::unique_ptr<FrameRing> m_received;          //!< frames for the stack
    std::unique_ptr<FrameRing> m_transmitted;       //!< frames for the port
    std::thread m_thread;                           //!< the port thread
    int m_wake{-1};                                 //!< event that wakes it
    std::atomic<bool> m_open{false};                //!< true if it serves the port
    std::atomic<bool> m_sleeps{false};              //!< true if it needs this event
    std::atomic<bool> m_closing{false};             //!< true if it has to end
    std::atomic<bool> m_begun{false};               //!< true if it may schedule events
    std::atomic<bool> m_scheduled{false};           //!< true if ForwardUp is scheduled
    bool m_linkUp{false};                           //!< true if frames can pass
    dray_facts m_facts{};                           //!< facts when the port was closed
    NetDevice::ReceiveCallback m_rxCallback;        //!< the stack
    NetDevice::PromiscReceiveCallback m_promiscRxCallback; //!< the stack, all frames
    TracedCallback<> m_linkChangeCallbacks;         //!< users of the link's state

    TracedCallback<Ptr<const Packet>> m_macTxTrace;          //!< trace source MacTx
    TracedCallback<Ptr<const Packet>> m_macTxDropTrace;      //!< trace source MacTxDrop
    TracedCallback<Ptr<const Packet>> m_macPromiscRxTrace;   //!< trace source MacPromiscRx
    TracedCallback<Ptr<const Packet>> m_macRxTrace;          //!< trace source MacRx
    TracedCallback<Ptr<const Packet>> m_macRxDropTrace;      //!< trace source MacRxDrop
    TracedCallback<Ptr<const Packet>> m_phyTxEndTrace;       //!< trace source PhyTxEnd
    TracedCallback<Ptr<const Packet>> m_phyTxDropTrace;      //!< trace source PhyTxDrop
    TracedCallback<Ptr<const Packet>> m_phyRxEndTrace;       //!< trace source PhyRxEnd
    TracedCallback<Ptr<const Packet>> m_phyRxDropTrace;      //!< trace source PhyRxDrop
    TracedCallback<Ptr<const Packet>> m_snifferTrace;        //!< trace source Sniffer
    TracedCallback<Ptr<const Packet>> m_promiscSnifferTrace; //!< trace source PromiscSniffer
};

} // namespace ns3

#endif /* DRAY_NET_DEVICE_H */
