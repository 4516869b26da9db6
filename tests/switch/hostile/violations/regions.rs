//! Memory tables.

use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

use crate::hostile::Expect::{self, Harmless, Refused};
use crate::hostile::memory::{BUFFERS, GUEST, LEN, Memory, USER};
use crate::hostile::message::{ADD_MEM_REG, PLAIN, REM_MEM_REG, Region};
use crate::hostile::ring::{FRAME, WRITE, buffer};
use crate::hostile::{HostileDriver, Violation, violation};

const INVALID: Expect = Refused("expected non-empty regions within the address space");

/// Negotiates, and shares these regions of the memory.
fn share(driver: &mut HostileDriver, regions: &[Region]) {
    driver.negotiate(PLAIN);
    let fds = vec![driver.memory.as_fd(); regions.len()];
    driver.share(regions, &fds);
}

/// Starts, and lets the switch copy to and from the memory.
fn be_busy(driver: &mut HostileDriver) {
    driver.start(PLAIN);
    let (mut tx, mut rx) = (driver.tx(), driver.rx());
    (0..256).for_each(|index| {
        tx.offer((buffer() + index * 2048, 2048, 0, 0));
        rx.offer((buffer() + index * 2048, 2048, WRITE, 0));
    });
    driver.kick();
}

pub(super) const VIOLATIONS: &[Violation] = &[
    violation("regions that overlap", Refused("overlaps another one"), |driver| {
        let half = Region { len: LEN / 2, ..Region::ALL };
        share(driver, &[half, Region { guest: GUEST + LEN / 2 - 1, user: USER + LEN, ..half }]);
    }),
    violation("a region beyond the last address", INVALID, |driver| {
        share(driver, &[Region { guest: u64::MAX - 100, ..Region::ALL }]);
    }),
    violation("a region beyond the last address of its own process", INVALID, |driver| {
        share(driver, &[Region { user: u64::MAX - 100, ..Region::ALL }]);
    }),
    violation("a region at an offset that wraps around", INVALID, |driver| {
        share(driver, &[Region { offset: u64::MAX - 100, ..Region::ALL }]);
    }),
    violation("a region of no bytes", INVALID, |driver| {
        share(driver, &[Region { len: 0, ..Region::ALL }]);
    }),
    violation(
        "a region longer than its file",
        Refused("do not fit the file of 1048576 bytes"),
        |driver| {
            share(driver, &[Region { len: LEN + 1, ..Region::ALL }]);
        },
    ),
    violation(
        "a region past the end of its file",
        Refused("at offset 1048576 do not fit the file of 1048576 bytes"),
        |driver| share(driver, &[Region { offset: LEN, ..Region::ALL }]),
    ),
    violation("a table of no regions", INVALID, |driver| share(driver, &[])),
    violation("fewer file descriptors than regions", INVALID, |driver| {
        driver.negotiate(PLAIN);
        let other = Region { guest: 0, user: 0x1000, ..Region::ALL };
        driver.share(&[Region::ALL, other], &[driver.memory.as_fd()]);
    }),
    violation("more file descriptors than regions", INVALID, |driver| {
        driver.negotiate(PLAIN);
        driver.share(&[Region::ALL], &[driver.memory.as_fd(); 3]);
    }),
    violation("a table of 33 regions", Refused("more than 32 file descriptors"), |driver| {
        let region = |index: u64| Region {
            guest: index * 4096,
            user: 0x1000 + index * 4096,
            len: 4096,
            offset: 0,
        };
        share(driver, &(0..33).map(region).collect::<Vec<_>>());
    }),
    violation("a table that claims a million regions", INVALID, |driver| {
        driver.negotiate(PLAIN);
        let body = crate::hostile::message::words(&[1_000_000, 0]);
        driver.send(crate::hostile::message::SET_MEM_TABLE, &body, &[driver.memory.as_fd()]);
    }),
    violation("memory of 64 TiB, all holes", Refused("bytes of memory: at most"), |driver| {
        driver.negotiate(PLAIN);
        let len = 1 << 46;
        driver.share(&[Region { len, ..Region::ALL }], &[Memory::of(len).as_fd()]);
    }),
    violation("memory of 64 GiB, all holes", Harmless, |driver| {
        driver.memory = Memory::of(1 << 36);
        driver.negotiate(PLAIN);
        driver.share(&[Region { len: 1 << 36, ..Region::ALL }], &[driver.memory.as_fd()]);
        (0..2).for_each(|index| driver.set_up(index));
        (0..2).for_each(|index| driver.enable(index));
        driver.tx().offer((GUEST + (1 << 35), FRAME, 0, 0));
        driver.kick();
        driver.sync();
    }),
    violation(
        "a region removed while it contains rings",
        Refused("is outside the shared memory"),
        |driver| {
            be_busy(driver);
            driver.region(REM_MEM_REG, Region::ALL, &[]);
            let elsewhere = Region { guest: 0, user: 0x1000, ..Region::ALL };
            driver.region(ADD_MEM_REG, elsewhere, &[driver.memory.as_fd()]);
        },
    ),
    violation("all memory removed while it contains rings", Harmless, |driver| {
        be_busy(driver);
        driver.region(REM_MEM_REG, Region::ALL, &[]);
        driver.kick();
        driver.sync();
    }),
    violation(
        "removal of an unknown region",
        Refused("no memory region of 1048576 bytes at 0x0 to remove"),
        |driver| {
            driver.start(PLAIN);
            driver.region(REM_MEM_REG, Region { guest: 0, ..Region::ALL }, &[]);
        },
    ),
    violation("a region added over another", Refused("overlaps another one"), |driver| {
        driver.start(PLAIN);
        driver.region(ADD_MEM_REG, Region::ALL, &[driver.memory.as_fd()]);
    }),
    violation("a region added without a file descriptor", INVALID, |driver| {
        driver.start(PLAIN);
        driver.region(ADD_MEM_REG, Region { guest: 0, ..Region::ALL }, &[]);
    }),
    violation(
        "a new memory table without the rings",
        Refused("is outside the shared memory"),
        |driver| {
            be_busy(driver);
            let other = Region { guest: 0, user: 0x1000, ..Region::ALL };
            driver.share(&[other], &[driver.memory.as_fd()]);
        },
    ),
    violation("the same memory table 500 times", Harmless, |driver| {
        be_busy(driver);
        (0..500).for_each(|_| driver.share_all());
        driver.sync();
    }),
    violation("a file truncated while idle", Refused("its file was truncated"), |driver| {
        driver.start(PLAIN);
        driver.memory.truncate(0);
        driver.kick();
    }),
    violation("a file truncated before ring setup", Refused("its file was truncated"), |driver| {
        driver.negotiate(PLAIN);
        driver.share_all();
        driver.sync();
        driver.memory.truncate(0);
        (0..2).for_each(|index| driver.set_up(index));
        (0..2).for_each(|index| driver.enable(index));
        driver.sync();
        driver.kick();
    }),
    violation("a file truncated during a copy", Refused("its file was truncated"), |driver| {
        be_busy(driver);
        let memory = driver.memory.share();
        driver.meanwhile(move || {
            memory.truncate(crate::hostile::memory::BUFFERS);
            memory.truncate(LEN);
        });
        let (mut tx, kick) = (driver.tx(), driver.kicks[1].try_clone().expect("a descriptor"));
        (0..256).for_each(|index| {
            let place = buffer() + u64::from(index) * 2048;
            tx.descriptor(index, (place, 2048, 0, 0));
        });
        let mut posted = 256u16;
        tx.set_available(posted);
        driver.meanwhile(move || {
            while posted.wrapping_sub(tx.used()) < 256 {
                tx.post(posted % 256);
                posted = posted.wrapping_add(1);
            }
            let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        });
    }),
    violation(
        "memory of 300 GiB, all holes",
        Refused("322122547200 bytes of memory: at most 274877906944 are allowed"),
        |driver| {
            driver.negotiate(PLAIN);
            let len = 300 << 30;
            driver.share(&[Region { len, ..Region::ALL }], &[Memory::of(len).as_fd()]);
        },
    ),
    violation(
        "regions that together exceed the memory limit",
        Refused("322122547200 bytes of memory: at most 274877906944 are allowed"),
        |driver| {
            driver.negotiate(PLAIN);
            let len = 100 << 30;
            let memory = Memory::of(len);
            for index in 0..3 {
                let (guest, user) = (GUEST + index * len, USER + index * len);
                driver.region(
                    ADD_MEM_REG,
                    Region { guest, len, user, offset: 0 },
                    &[memory.as_fd()],
                );
            }
        },
    ),
    violation("memory of 200 GiB, shared repeatedly", Harmless, |driver| {
        let len = 200 << 30;
        driver.memory = Memory::of(len);
        driver.negotiate(PLAIN);
        let all = Region { len, ..Region::ALL };
        (0..50).for_each(|_| driver.share(&[all], &[driver.memory.as_fd()]));
        (0..2).for_each(|index| driver.set_up(index));
        (0..2).for_each(|index| driver.enable(index));
        driver.sync();
    }),
    violation(
        "33 regions, added one by one",
        Refused("33 memory regions: at most 32 are allowed"),
        |driver| {
            driver.negotiate(PLAIN);
            for index in 0..33 {
                let at = index * 4096;
                let region = Region { guest: at, len: 4096, user: 0x1000 + at, offset: 0 };
                driver.region(ADD_MEM_REG, region, &[driver.memory.as_fd()]);
            }
        },
    ),
    violation(
        "32 regions of one file, truncated together",
        Refused("its file was truncated"),
        |driver| {
            driver.negotiate(PLAIN);
            driver.share(&Region::parts::<32>(), &[driver.memory.as_fd(); 32]);
            // No part of a ring may cross the border of two regions.
            (0..2).for_each(|index| driver.set_up(index));
            (0..2).for_each(|index| driver.enable(index));
            driver.sync();
            let mut tx = driver.tx();
            (0..32).for_each(|index| tx.offer((GUEST + index * (LEN / 32), 1500, 0, 0)));
            driver.memory.truncate(0);
            driver.kick();
        },
    ),
    violation("a file with holes punched while frames are copied", Harmless, |driver| {
        be_busy(driver);
        let memory = driver.memory.share();
        driver.meanwhile(move || {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(memory.file(), flags, BUFFERS, LEN - BUFFERS).expect("a memfd");
        });
    }),
    violation(
        "frames in huge pages that cannot be allocated",
        Refused("its pages cannot be allocated"),
        |driver| {
            driver.negotiate(PLAIN);
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
            let huge = memfd_create("driver", flags).expect("a memfd");
            // More memory than a machine has.
            let len = 1 << 37;
            ftruncate(&huge, len).expect("a sparse file");
            let guest = GUEST + (1 << 40);
            let holes = Region { guest, len, user: USER + (1 << 40), offset: 0 };
            driver.share(&[Region::ALL, holes], &[driver.memory.as_fd(), huge.as_fd()]);
            (0..2).for_each(|index| driver.set_up(index));
            (0..2).for_each(|index| driver.enable(index));
            driver.sync();
            let mut tx = driver.tx();
            (0..256)
                .for_each(|index| tx.offer((guest + len - (index + 1) * (2 << 20), FRAME, 0, 0)));
            driver.kick();
        },
    ),
];
