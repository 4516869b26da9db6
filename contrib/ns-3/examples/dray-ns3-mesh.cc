/*
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A wireless mesh between two ports, simulated in real time: stations in a row, each of which hears
 * only its neighbours (802.11a, ad hoc), and which find routes by OLSR (RFC 3626). The first and the
 * last station are gateways to the networks at the ports.
 *
 * It prints "open" when both ports are open, "routed" when each gateway has a route to the other's
 * network, and runs until a signal ends it.
 */
#include "../helper/dray-net-device-helper.h"
#include "../model/dray-net-device.h"

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/mobility-module.h"
#include "ns3/network-module.h"
#include "ns3/olsr-module.h"
#include "ns3/wifi-module.h"
#include "ns3/yans-wifi-helper.h"

#include <cstdio>
#include <string>

using namespace ns3;

namespace
{

/// A port of the simulation, and the gateway's address in the network there.
struct Side
{
    std::string uri;
    std::string address;
    Ptr<Node> gateway;

    Ipv4Address Ip() const
    {
        return Ipv4Address(address.substr(0, address.find('/')).c_str());
    }

    Ipv4Mask Mask() const
    {
        return Ipv4Mask(address.substr(address.find('/')).c_str());
    }
};

/// Interfaces of a station, in the order in which they are added.
enum Interfaces
{
    LOOPBACK,
    RADIO,
    PORT
};

void
Fail(const std::string& why)
{
    fprintf(stderr, "dray-ns3-mesh: %s\n", why.c_str());
    exit(1);
}

NetDeviceContainer
InstallRadios(NodeContainer stations, double spacing, double range)
{
    MobilityHelper mobility;
    auto places = CreateObject<ListPositionAllocator>();
    for (uint32_t i = 0; i < stations.GetN(); i++)
    {
        places->Add(Vector(i * spacing, 0, 0));
    }
    mobility.SetPositionAllocator(places);
    mobility.Install(stations);

    YansWifiChannelHelper channel;
    channel.SetPropagationDelay("ns3::ConstantSpeedPropagationDelayModel");
    channel.AddPropagationLoss("ns3::RangePropagationLossModel", "MaxRange", DoubleValue(range));
    YansWifiPhyHelper phy;
    phy.SetChannel(channel.Create());
    WifiMacHelper mac;
    mac.SetType("ns3::AdhocWifiMac");
    WifiHelper wifi;
    wifi.SetStandard(WIFI_STANDARD_80211a);
    wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager",
                                 "DataMode",
                                 StringValue("OfdmRate24Mbps"),
                                 "ControlMode",
                                 StringValue("OfdmRate6Mbps"));
    return wifi.Install(phy, mac, stations);
}

Ptr<Ipv4RoutingProtocol>
RoutingOf(Ptr<Node> station)
{
    return station->GetObject<Ipv4>()->GetRoutingProtocol();
}

/// Opens the port of a gateway, and announces the network there.
void
Attach(const Side& side)
{
    NetDeviceContainer devices = DrayNetDeviceHelper(side.uri).Install(side.gateway);
    auto ipv4 = side.gateway->GetObject<Ipv4>();
    const uint32_t interface = ipv4->AddInterface(devices.Get(0));
    NS_ABORT_UNLESS(interface == PORT);
    ipv4->AddAddress(interface, Ipv4InterfaceAddress(side.Ip(), side.Mask()));
    ipv4->SetUp(interface);
    auto olsr = Ipv4RoutingHelper::GetRouting<olsr::RoutingProtocol>(RoutingOf(side.gateway));
    olsr->AddHostNetworkAssociation(side.Ip().CombineMask(side.Mask()), side.Mask());
    const std::string why = DynamicCast<DrayNetDevice>(devices.Get(0))->Open();
    if (!why.empty())
    {
        Fail(why);
    }
}

bool
HasRoute(Ptr<Node> station, Ipv4Address to)
{
    Ipv4Header header;
    header.SetDestination(to);
    Socket::SocketErrno error;
    auto route = RoutingOf(station)->RouteOutput(nullptr, header, nullptr, error);
    return route && route->GetOutputDevice() == station->GetDevice(0);
}

/// Waits until the gateways have routes to each other's network.
void
WaitForRoutes(const Side* sides)
{
    if (HasRoute(sides[0].gateway, sides[1].Ip()) && HasRoute(sides[1].gateway, sides[0].Ip()))
    {
        printf("routed\n");
        fflush(stdout);
        return;
    }
    Simulator::Schedule(MilliSeconds(100), &WaitForRoutes, sides);
}

} // namespace

int
main(int argc, char* argv[])
{
    Side sides[2];
    sides[0].address = "10.1.1.254/24";
    sides[1].address = "10.1.2.254/24";
    uint32_t count = 4;
    double spacing = 100;
    double range = 150;
    CommandLine cmd(__FILE__);
    cmd.Usage("Joins two ports by a simulated wireless mesh.");
    cmd.AddValue("stations", "number of stations in a row, 2 to 100", count);
    cmd.AddValue("spacing", "metres between neighbours", spacing);
    cmd.AddValue("range", "metres that a station is heard", range);
    cmd.AddValue("firstAddress", "address and prefix of the gateway at the first port",
                 sides[0].address);
    cmd.AddValue("secondAddress", "address and prefix of the gateway at the second port",
                 sides[1].address);
    cmd.AddNonOption("first", "URI of a port, for example raw:eth0", sides[0].uri);
    cmd.AddNonOption("second", "URI of the other port", sides[1].uri);
    cmd.Parse(argc, argv);
    if (sides[0].uri.empty() || sides[1].uri.empty())
    {
        fprintf(stderr, "dray-ns3-mesh: give the URIs of two ports; --help explains them\n");
        return 2;
    }
    if (count < 2 || count > 100 || spacing <= 0 || range < spacing)
    {
        fprintf(stderr, "dray-ns3-mesh: give 2 to 100 stations, no farther apart than they are heard\n");
        return 2;
    }
    for (const Side& side : sides)
    {
        if (side.address.find('/') == std::string::npos)
        {
            fprintf(stderr, "dray-ns3-mesh: %s: give an address with a prefix, as 10.1.1.254/24\n",
                    side.address.c_str());
            return 2;
        }
    }

    GlobalValue::Bind("SimulatorImplementationType", StringValue("ns3::RealtimeSimulatorImpl"));
    GlobalValue::Bind("ChecksumEnabled", BooleanValue(true));
    NodeContainer stations;
    stations.Create(count);
    sides[0].gateway = stations.Get(0);
    sides[1].gateway = stations.Get(count - 1);
    NetDeviceContainer radios = InstallRadios(stations, spacing, range);

    OlsrHelper olsr;
    for (const Side& side : sides)
    {
        // Hosts at the ports do not take part in OLSR.
        olsr.ExcludeInterface(side.gateway, PORT);
    }
    Ipv4ListRoutingHelper routing;
    routing.Add(Ipv4StaticRoutingHelper(), 0);
    routing.Add(olsr, 10);
    InternetStackHelper internet;
    internet.SetIpv6StackInstall(false);
    internet.SetRoutingHelper(routing);
    internet.Install(stations);
    Ipv4AddressHelper("172.16.0.0", "255.255.255.0").Assign(radios);
    for (const Side& side : sides)
    {
        Attach(side);
    }
    printf("open\n");
    fflush(stdout);
    WaitForRoutes(sides);
    Simulator::Run();
    return 0;
}
