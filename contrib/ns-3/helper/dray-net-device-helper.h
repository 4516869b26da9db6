/*
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef DRAY_NET_DEVICE_HELPER_H
#define DRAY_NET_DEVICE_HELPER_H

#include "ns3/net-device-container.h"
#include "ns3/node-container.h"
#include "ns3/object-factory.h"
#include "ns3/trace-helper.h"

#include <string>

namespace ns3
{

/**
 * \brief Builds DrayNetDevice objects.
 */
class DrayNetDeviceHelper : public PcapHelperForDevice, public AsciiTraceHelperForDevice
{
  public:
    /// \param uri URI of the port, for example virtio:/run/dray/a.sock
    explicit DrayNetDeviceHelper(const std::string& uri);

    /**
     * Set an attribute of each device that is built from now on.
     *
     * \param name its name
     * \param value its value
     */
    void SetAttribute(const std::string& name, const AttributeValue& value);

    /**
     * Build a device, with the next free MAC address. Two simulations have the same ones: give
     * devices that reach each other an address.
     *
     * \param node its node
     * \return the device
     */
    NetDeviceContainer Install(Ptr<Node> node) const;

  private:
    void EnablePcapInternal(std::string prefix,
                            Ptr<NetDevice> nd,
                            bool promiscuous,
                            bool explicitFilename) override;

    void EnableAsciiInternal(Ptr<OutputStreamWrapper> stream,
                             std::string prefix,
                             Ptr<NetDevice> nd,
                             bool explicitFilename) override;

    ObjectFactory m_factory; //!< factory of the devices
};

} // namespace ns3

#endif /* DRAY_NET_DEVICE_HELPER_H */
