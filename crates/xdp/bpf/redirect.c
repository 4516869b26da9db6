/* Passes frames from interface to interface, before the kernel's network stack sees them: in pairs, or
 * by the station that they are for. */
#include "bpf.h"

#include <linux/if_ether.h>

/* Where the frames of an interface go, in pairs. */
struct {
    NUMBER(type, BPF_MAP_TYPE_DEVMAP_HASH);
    TYPE(key, __u32);
    TYPE(value, struct bpf_devmap_val);
    NUMBER(max_entries, 256);
} pairs SEC(".maps");

/* The interfaces that belong together, each by its index. */
struct {
    NUMBER(type, BPF_MAP_TYPE_DEVMAP_HASH);
    TYPE(key, __u32);
    TYPE(value, struct bpf_devmap_val);
    NUMBER(max_entries, 256);
} members SEC(".maps");

struct address {
    __u8 bytes[ETH_ALEN];
    __u8 zero[2];
};

struct station {
    /* Index of the interface it is behind. */
    __u32 interface;
    __u32 unused;
    /* When it sent last, on the monotonic clock, to the second or so. */
    __u64 seen_ns;
};

/* Who is where. The control side writes it; here only the time is brought up to date. */
struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    TYPE(key, struct address);
    TYPE(value, struct station);
    NUMBER(max_entries, 16384);
} stations SEC(".maps");

/* What the control side is told: a station, and the interface at which it was seen. */
struct sighting {
    struct address station;
    __u32 interface;
    __u32 unused;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_RINGBUF);
    NUMBER(max_entries, 1 << 18);
} sightings SEC(".maps");

#define SECOND_NS 1000000000ull

/* Who makes up senders without end must not keep the control side from hearing of the others: of each
 * interface it hears so many times a second. */
#define NEWS_MAX 512

struct news {
    __u64 since_ns;
    __u32 told;
    __u32 unused;
};

/* By interface; the control side makes the entries. */
struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    TYPE(key, __u32);
    TYPE(value, struct news);
    NUMBER(max_entries, 256);
} news SEC(".maps");

/* Whether the control side may be told something more of what `interface` received. CPUs that ask at
 * once may get a few more together, for nobody counts on the number. */
INLINE int may_tell(__u32 interface)
{
    struct news *of = bpf_map_lookup_elem(&news, &interface);
    if (!of)
        return 0;
    __u64 now = bpf_ktime_get_coarse_ns();
    if (now - of->since_ns > SECOND_NS) {
        of->since_ns = now;
        of->told = 0;
    }
    if (of->told >= NEWS_MAX)
        return 0;
    of->told++;
    return 1;
}

/* xdp.frags: frames may consist of several parts. */
SEC("xdp.frags")
int dray_pairs(struct xdp_md *frame)
{
    return bpf_redirect_map(&pairs, frame->ingress_ifindex, XDP_DROP);
}

/* Has the control side learn where the sender is, where that is news. */
INLINE void see(const struct address *sender, __u32 interface)
{
    struct station *station = bpf_map_lookup_elem(&stations, sender);
    if (station && station->interface == interface) {
        __u64 now = bpf_ktime_get_coarse_ns();
        /* Seldom, for every CPU reads this. */
        if (now - station->seen_ns > SECOND_NS)
            station->seen_ns = now;
        return;
    }
    if (!may_tell(interface))
        return;
    struct sighting sighting = {.station = *sender, .interface = interface};
    /* Where it finds no room the next frame tells it. */
    bpf_ringbuf_output(&sightings, &sighting, sizeof(sighting), 0);
}

SEC("xdp.frags")
int dray_learning(struct xdp_md *frame)
{
    void *end = (void *)(long)frame->data_end;
    struct ethhdr *ethernet = (void *)(long)frame->data;
    struct address sender = {}, receiver = {};

    if ((void *)(ethernet + 1) > end)
        return XDP_DROP;
    __builtin_memcpy(receiver.bytes, ethernet->h_dest, ETH_ALEN);
    __builtin_memcpy(sender.bytes, ethernet->h_source, ETH_ALEN);
    /* A group sends nothing. */
    if (!(sender.bytes[0] & 1))
        see(&sender, frame->ingress_ifindex);
    if (!(receiver.bytes[0] & 1)) {
        struct station *station = bpf_map_lookup_elem(&stations, &receiver);
        if (station) {
            if (station->interface == frame->ingress_ifindex)
                return XDP_DROP;
            return bpf_redirect_map(&members, station->interface, XDP_DROP);
        }
    }
    return bpf_redirect_map(&members, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
}

/* Does nothing: a veth takes redirected frames only where there is a program. */
SEC("xdp.frags")
int dray_pass(struct xdp_md *frame)
{
    (void)frame;
    return XDP_PASS;
}
