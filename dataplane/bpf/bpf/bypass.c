/* Bypass: the kernel forwards frames from one container's interface to another's, if the switch allows it
 * for both. All other frames go to the switch, through a TAP interface.
 *
 * The program runs in a network namespace that holds, for each container, the other end of its veth pair
 * (interface 2N) and the TAP interface that the switch reads and writes (2N + 1). N is the number of the
 * container's entry. */
#include "bpf.h"

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

/* Also in src/bypass.rs. */
#define ENTRIES 4096

static long (*const bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*const bpf_redirect_peer)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect_peer;

/* A container's address, and the switch that it belongs to. */
struct station {
    __u64 switch_id;
    __u8 address[ETH_ALEN];
    __u8 zero[2];
};

/* A container. The plugin writes the first three members before there are frames; the switch writes the
 * next ones at any time, and alone uses the last one. */
struct entry {
    __u8 tap[16];
    struct station station;
    __u64 mtu;
    /* 0: its frames go through the switch. Otherwise its VLAN and its isolation group, 0 for none. */
    __u32 is_open;
    __u32 vlan;
    __u64 group;
    /* Frames and bytes from the container, and to it, that bypassed the switch. */
    __u64 from_frames;
    __u64 from_bytes;
    __u64 to_frames;
    __u64 to_bytes;
    __u64 before[4];
};

struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(map_flags, BPF_F_MMAPABLE);
    TYPE(key, __u32);
    TYPE(value, struct entry);
    NUMBER(max_entries, ENTRIES);
} entries SEC(".maps");

/* Number of the entry of each station. */
struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    TYPE(key, struct station);
    TYPE(value, __u32);
    NUMBER(max_entries, ENTRIES);
} stations SEC(".maps");

INLINE int is_same(const __u8 *a, const __u8 *b)
{
    for (int at = 0; at < ETH_ALEN; at++) {
        if (a[at] != b[at])
            return 0;
    }
    return 1;
}

/* Bridges had the last ones for nested tags, before 802.1ad. */
INLINE int is_tag(__u16 type)
{
    return type == ETH_P_8021Q || type == ETH_P_8021AD || type == 0x9100 || type == 0x9200 ||
           type == 0x9300;
}

/* Returns the entry of the frame's receiver if the frame may bypass the switch. */
INLINE struct entry *receiver(struct __sk_buff *frame, struct entry *from, __u32 *number)
{
    struct ethhdr *header = (void *)(long)frame->data;
    if (!from->is_open || (void *)(header + 1) > (void *)(long)frame->data_end)
        return 0;
    /* Tags, whichever way the kernel keeps them, and forged addresses are the switch's business. */
    if (frame->vlan_present || is_tag(__builtin_bswap16(header->h_proto)) ||
        !is_same(header->h_source, from->station.address))
        return 0;
    struct station station = {.switch_id = from->station.switch_id};
    __builtin_memcpy(station.address, header->h_dest, ETH_ALEN);
    __u32 *found = bpf_map_lookup_elem(&stations, &station);
    if (!found)
        return 0;
    *number = *found;
    struct entry *to = bpf_map_lookup_elem(&entries, number);
    /* An entry may have been given to another container meanwhile. */
    if (!to || to == from || !to->is_open || to->vlan != from->vlan ||
        to->station.switch_id != from->station.switch_id || !is_same(station.address, to->station.address))
        return 0;
    /* Groups of different names may have the same number, but not the other way round. */
    if (from->group && from->group == to->group)
        return 0;
    /* A packet that is not segmented yet stays whole: only the payload of its segments is compared. */
    __u64 len = frame->gso_size ? frame->gso_size : frame->len - sizeof(*header);
    return len <= to->mtu ? to : 0;
}

SEC("classifier")
int dray_bypass(struct __sk_buff *frame)
{
    __u32 number = frame->ifindex / 2;
    /* From the switch. */
    if (frame->ifindex % 2)
        return bpf_redirect_peer(2 * number, 0);
    struct entry *from = bpf_map_lookup_elem(&entries, &number);
    if (!from)
        return TC_ACT_SHOT;
    __u32 receiver_number = 0;
    struct entry *to = receiver(frame, from, &receiver_number);
    if (!to)
        return bpf_redirect(frame->ifindex + 1, 0);
    __sync_fetch_and_add(&from->from_frames, 1);
    __sync_fetch_and_add(&from->from_bytes, frame->len);
    __sync_fetch_and_add(&to->to_frames, 1);
    __sync_fetch_and_add(&to->to_bytes, frame->len);
    return bpf_redirect_peer(2 * receiver_number, 0);
}
