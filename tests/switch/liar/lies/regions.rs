//! Memory tables.

use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

use crate::liar::Expect::{self, Harmless, Refused};
use crate::liar::memory::{BUFFERS, GUEST, LEN, Memory, USER};
use crate::liar::message::{ADD_MEM_REG, PLAIN, REM_MEM_REG, Region};
use crate::liar::ring::{FRAME, WRITE, buffer};
use crate::liar::{Liar, Lie, lie};

const INVALID: Expect = Refused("expected non-empty regions within the address space");

/// Negotiates, and shares these regions of the memory.
fn share(liar: &mut Liar, regions: &[Region]) {
    liar.negotiate(PLAIN);
    let fds = vec![liar.memory.as_fd(); regions.len()];
    liar.share(regions, &fds);
}

/// Starts, and lets the switch copy to and from the memory.
fn be_busy(liar: &mut Liar) {
    liar.start(PLAIN);
    let (mut tx, mut rx) = (liar.tx(), liar.rx());
    (0..256).for_each(|index| {
        tx.offer((buffer() + index * 2048, 2048, 0, 0));
        rx.offer((buffer() + index * 2048, 2048, WRITE, 0));
    });
    liar.kick();
}

pub(super) const LIES: &[Lie] = &[
    lie("regions that overlap", Refused("overlaps another one"), |liar| {
        let half = Region { len: LEN / 2, ..Region::ALL };
        share(liar, &[half, Region { guest: GUEST + LEN / 2 - 1, user: USER + LEN, ..half }]);
    }),
    lie("a region beyond the last address", INVALID, |liar| {
        share(liar, &[Region { guest: u64::MAX - 100, ..Region::ALL }]);
    }),
    lie("a region beyond the last address of its own process", INVALID, |liar| {
        share(liar, &[Region { user: u64::MAX - 100, ..Region::ALL }]);
    }),
    lie("a region at an offset that wraps around", INVALID, |liar| {
        share(liar, &[Region { offset: u64::MAX - 100, ..Region::ALL }]);
    }),
    lie("a region of no bytes", INVALID, |liar| share(liar, &[Region { len: 0, ..Region::ALL }])),
    lie("a region longer than its file", Refused("do not fit the file of 1048576 bytes"), |liar| {
        share(liar, &[Region { len: LEN + 1, ..Region::ALL }]);
    }),
    lie(
        "a region past the end of its file",
        Refused("at offset 1048576 do not fit the file of 1048576 bytes"),
        |liar| share(liar, &[Region { offset: LEN, ..Region::ALL }]),
    ),
    lie("a table of no regions", INVALID, |liar| share(liar, &[])),
    lie("fewer file descriptors than regions", INVALID, |liar| {
        liar.negotiate(PLAIN);
        let other = Region { guest: 0, user: 0x1000, ..Region::ALL };
        liar.share(&[Region::ALL, other], &[liar.memory.as_fd()]);
    }),
    lie("more file descriptors than regions", INVALID, |liar| {
        liar.negotiate(PLAIN);
        liar.share(&[Region::ALL], &[liar.memory.as_fd(); 3]);
    }),
    lie("a table of 33 regions", Refused("more than 32 file descriptors"), |liar| {
        let region = |index: u64| Region {
            guest: index * 4096,
            user: 0x1000 + index * 4096,
            len: 4096,
            offset: 0,
        };
        share(liar, &(0..33).map(region).collect::<Vec<_>>());
    }),
    lie("a table that claims a million regions", INVALID, |liar| {
        liar.negotiate(PLAIN);
        let body = crate::liar::message::words(&[1_000_000, 0]);
        liar.send(crate::liar::message::SET_MEM_TABLE, &body, &[liar.memory.as_fd()]);
    }),
    lie("memory of 64 TiB, all holes", Refused("bytes of memory: at most"), |liar| {
        liar.negotiate(PLAIN);
        let len = 1 << 46;
        liar.share(&[Region { len, ..Region::ALL }], &[Memory::of(len).as_fd()]);
    }),
    lie("memory of 64 GiB, all holes", Harmless, |liar| {
        liar.memory = Memory::of(1 << 36);
        liar.negotiate(PLAIN);
        liar.share(&[Region { len: 1 << 36, ..Region::ALL }], &[liar.memory.as_fd()]);
        (0..2).for_each(|index| liar.set_up(index));
        (0..2).for_each(|index| liar.enable(index));
        liar.tx().offer((GUEST + (1 << 35), FRAME, 0, 0));
        liar.kick();
        liar.sync();
    }),
    lie(
        "a region removed while it contains rings",
        Refused("is outside the shared memory"),
        |liar| {
            be_busy(liar);
            liar.region(REM_MEM_REG, Region::ALL, &[]);
            let elsewhere = Region { guest: 0, user: 0x1000, ..Region::ALL };
            liar.region(ADD_MEM_REG, elsewhere, &[liar.memory.as_fd()]);
        },
    ),
    lie("all memory removed while it contains rings", Harmless, |liar| {
        be_busy(liar);
        liar.region(REM_MEM_REG, Region::ALL, &[]);
        liar.kick();
        liar.sync();
    }),
    lie(
        "removal of an unknown region",
        Refused("no memory region of 1048576 bytes at 0x0 to remove"),
        |liar| {
            liar.start(PLAIN);
            liar.region(REM_MEM_REG, Region { guest: 0, ..Region::ALL }, &[]);
        },
    ),
    lie("a region added over another", Refused("overlaps another one"), |liar| {
        liar.start(PLAIN);
        liar.region(ADD_MEM_REG, Region::ALL, &[liar.memory.as_fd()]);
    }),
    lie("a region added without a file descriptor", INVALID, |liar| {
        liar.start(PLAIN);
        liar.region(ADD_MEM_REG, Region { guest: 0, ..Region::ALL }, &[]);
    }),
    lie("a new memory table without the rings", Refused("is outside the shared memory"), |liar| {
        be_busy(liar);
        let other = Region { guest: 0, user: 0x1000, ..Region::ALL };
        liar.share(&[other], &[liar.memory.as_fd()]);
    }),
    lie("the same memory table 500 times", Harmless, |liar| {
        be_busy(liar);
        (0..500).for_each(|_| liar.share_all());
        liar.sync();
    }),
    lie("a file truncated while idle", Refused("its file was truncated"), |liar| {
        liar.start(PLAIN);
        liar.memory.truncate(0);
        liar.kick();
    }),
    lie("a file truncated before ring setup", Refused("its file was truncated"), |liar| {
        liar.negotiate(PLAIN);
        liar.share_all();
        liar.sync();
        liar.memory.truncate(0);
        (0..2).for_each(|index| liar.set_up(index));
        (0..2).for_each(|index| liar.enable(index));
        liar.sync();
        liar.kick();
    }),
    lie("a file truncated during a copy", Refused("its file was truncated"), |liar| {
        be_busy(liar);
        let memory = liar.memory.share();
        liar.meanwhile(move || {
            memory.truncate(crate::liar::memory::BUFFERS);
            memory.truncate(LEN);
        });
        let (mut tx, kick) = (liar.tx(), liar.kicks[1].try_clone().expect("a descriptor"));
        (0..256).for_each(|index| {
            let place = buffer() + u64::from(index) * 2048;
            tx.descriptor(index, (place, 2048, 0, 0));
        });
        let mut posted = 256u16;
        tx.set_available(posted);
        liar.meanwhile(move || {
            while posted.wrapping_sub(tx.used()) < 256 {
                tx.post(posted % 256);
                posted = posted.wrapping_add(1);
            }
            let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        });
    }),
    lie(
        "memory of 300 GiB, all holes",
        Refused("322122547200 bytes of memory: at most 274877906944 are allowed"),
        |liar| {
            liar.negotiate(PLAIN);
            let len = 300 << 30;
            liar.share(&[Region { len, ..Region::ALL }], &[Memory::of(len).as_fd()]);
        },
    ),
    lie(
        "regions that together exceed the memory limit",
        Refused("322122547200 bytes of memory: at most 274877906944 are allowed"),
        |liar| {
            liar.negotiate(PLAIN);
            let len = 100 << 30;
            let memory = Memory::of(len);
            for index in 0..3 {
                let (guest, user) = (GUEST + index * len, USER + index * len);
                liar.region(ADD_MEM_REG, Region { guest, len, user, offset: 0 }, &[memory.as_fd()]);
            }
        },
    ),
    lie("memory of 200 GiB, shared repeatedly", Harmless, |liar| {
        let len = 200 << 30;
        liar.memory = Memory::of(len);
        liar.negotiate(PLAIN);
        let all = Region { len, ..Region::ALL };
        (0..50).for_each(|_| liar.share(&[all], &[liar.memory.as_fd()]));
        (0..2).for_each(|index| liar.set_up(index));
        (0..2).for_each(|index| liar.enable(index));
        liar.sync();
    }),
    lie(
        "33 regions, added one by one",
        Refused("33 memory regions: at most 32 are allowed"),
        |liar| {
            liar.negotiate(PLAIN);
            for index in 0..33 {
                let at = index * 4096;
                let region = Region { guest: at, len: 4096, user: 0x1000 + at, offset: 0 };
                liar.region(ADD_MEM_REG, region, &[liar.memory.as_fd()]);
            }
        },
    ),
    lie("32 regions of one file, truncated together", Refused("its file was truncated"), |liar| {
        liar.negotiate(PLAIN);
        liar.share(&Region::parts::<32>(), &[liar.memory.as_fd(); 32]);
        // No part of a ring may cross the border of two regions.
        (0..2).for_each(|index| liar.set_up(index));
        (0..2).for_each(|index| liar.enable(index));
        liar.sync();
        let mut tx = liar.tx();
        (0..32).for_each(|index| tx.offer((GUEST + index * (LEN / 32), 1500, 0, 0)));
        liar.memory.truncate(0);
        liar.kick();
    }),
    lie("a file with holes punched while frames are copied", Harmless, |liar| {
        be_busy(liar);
        let memory = liar.memory.share();
        liar.meanwhile(move || {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(memory.file(), flags, BUFFERS, LEN - BUFFERS).expect("a memfd");
        });
    }),
    lie(
        "frames in huge pages that cannot be allocated",
        Refused("its pages cannot be allocated"),
        |liar| {
            liar.negotiate(PLAIN);
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
            let huge = memfd_create("liar", flags).expect("a memfd");
            // More memory than a machine has.
            let len = 1 << 37;
            ftruncate(&huge, len).expect("a sparse file");
            let guest = GUEST + (1 << 40);
            let holes = Region { guest, len, user: USER + (1 << 40), offset: 0 };
            liar.share(&[Region::ALL, holes], &[liar.memory.as_fd(), huge.as_fd()]);
            (0..2).for_each(|index| liar.set_up(index));
            (0..2).for_each(|index| liar.enable(index));
            liar.sync();
            let mut tx = liar.tx();
            (0..256)
                .for_each(|index| tx.offer((guest + len - (index + 1) * (2 << 20), FRAME, 0, 0)));
            liar.kick();
        },
    ),
];
