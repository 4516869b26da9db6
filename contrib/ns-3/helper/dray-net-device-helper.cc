/*
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "dray-net-device-helper.h"

#include "../model/dray-net-device.h"

#include "ns3/config.h"
#include "ns3/log.h"
#include "ns3/mac48-address.h"
#include "ns3/node.h"
#include "ns3/string.h"

#include <sstream>

namespace ns3
{

NS_LOG_COMPONENT_DEFINE("DrayNetDeviceHelper");

DrayNetDeviceHelper::DrayNetDeviceHelper(const std::string& uri)
{
    m_factory.SetTypeId(DrayNetDevice::GetTypeId());
    m_factory.Set("Uri", StringValue(uri));
}

void
DrayNetDeviceHelper::SetAttribute(const std::string& name, const AttributeValue& value)
{
    m_factory.Set(name, value);
}

NetDeviceContainer
DrayNetDeviceHelper::Install(Ptr<Node> node) const
{
    Ptr<DrayNetDevice> device = m_factory.Create<DrayNetDevice>();
    if (Mac48Address::ConvertFrom(device->GetAddress()).IsBroadcast())
    {
        device->SetAddress(Mac48Address::Allocate());
    }
    node->AddDevice(device);
    return NetDeviceContainer(device);
}

void
DrayNetDeviceHelper::EnablePcapInternal(std::string prefix,
                                        Ptr<NetDevice> nd,
                                        bool promiscuous,
                                        bool explicitFilename)
{
    Ptr<DrayNetDevice> device = DynamicCast<DrayNetDevice>(nd);
    if (!device)
    {
        NS_LOG_INFO("Device " << nd << " is not a ns3::DrayNetDevice");
        return;
    }
    PcapHelper pcap;
    std::string name = explicitFilename ? prefix : pcap.GetFilenameFromDevice(prefix, device);
    auto file = pcap.CreateFile(name, std::ios::out, PcapHelper::DLT_EN10MB);
    pcap.HookDefaultSink<DrayNetDevice>(device, promiscuous ? "PromiscSniffer" : "Sniffer", file);
}

void
DrayNetDeviceHelper::EnableAsciiInternal(Ptr<OutputStreamWrapper> stream,
                                         std::string prefix,
                                         Ptr<NetDevice> nd,
                                         bool explicitFilename)
{
    Ptr<DrayNetDevice> device = DynamicCast<DrayNetDevice>(nd);
    if (!device)
    {
        NS_LOG_INFO("Device " << nd << " is not a ns3::DrayNetDevice");
        return;
    }
    Packet::EnablePrinting();
    if (!stream)
    {
        AsciiTraceHelper ascii;
        std::string name = explicitFilename ? prefix : ascii.GetFilenameFromDevice(prefix, device);
        ascii.HookDefaultReceiveSinkWithoutContext<DrayNetDevice>(device,
                                                                  "MacRx",
                                                                  ascii.CreateFileStream(name));
        return;
    }
    std::ostringstream path;
    path << "/NodeList/" << nd->GetNode()->GetId() << "/DeviceList/" << nd->GetIfIndex()
         << "/$ns3::DrayNetDevice/MacRx";
    Config::Connect(path.str(),
                    MakeBoundCallback(&AsciiTraceHelper::DefaultReceiveSinkWithContext, stream));
}

} // namespace ns3
