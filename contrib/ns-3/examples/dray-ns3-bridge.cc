/*
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Joins two ports by a bridge (BridgeNetDevice) that is simulated in real time. A network that is
 * simulated in place of the bridge is emulated between two containers.
 *
 * It prints "open" when both ports are open, and runs until a signal ends it.
 */
#include "../helper/dray-net-device-helper.h"
#include "../model/dray-net-device.h"

#include "ns3/bridge-module.h"
#include "ns3/core-module.h"
#include "ns3/network-module.h"

#include <cstdio>
#include <string>

using namespace ns3;

int
main(int argc, char* argv[])
{
    std::string uris[2];
    CommandLine cmd(__FILE__);
    cmd.Usage("Joins two ports by a bridge of a simulation.");
    cmd.AddNonOption("first", "URI of a port, for example raw:eth0", uris[0]);
    cmd.AddNonOption("second", "URI of the other port", uris[1]);
    cmd.Parse(argc, argv);
    if (uris[0].empty() || uris[1].empty())
    {
        fprintf(stderr, "dray-ns3-bridge: give the URIs of two ports; --help explains them\n");
        return 2;
    }

    GlobalValue::Bind("SimulatorImplementationType", StringValue("ns3::RealtimeSimulatorImpl"));
    auto node = CreateObject<Node>();
    NetDeviceContainer ports;
    for (const std::string& uri : uris)
    {
        ports.Add(DrayNetDeviceHelper(uri).Install(node));
    }
    BridgeHelper().Install(node, ports);
    for (uint32_t i = 0; i < ports.GetN(); i++)
    {
        const std::string why = DynamicCast<DrayNetDevice>(ports.Get(i))->Open();
        if (!why.empty())
        {
            fprintf(stderr, "dray-ns3-bridge: %s\n", why.c_str());
            return 1;
        }
    }
    printf("open\n");
    fflush(stdout);
    Simulator::Run();
    return 0;
}
