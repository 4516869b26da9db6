use super::*;

/// Neighbours with one that has no Ethernet address, and its number.
fn unknown(address: IpAddr) -> (Neighbours, u16) {
    let neighbours = Neighbours::new().unwrap();
    let number = neighbours.number(address).unwrap();
    neighbours.add_user(number);
    (neighbours, number)
}

/// Returns the number of rounds until the next solicitation, that round included.
fn rounds_to_solicitation(neighbours: &Neighbours) -> u64 {
    let mut rounds = 1..=10_000;
    rounds.find(|_| !neighbours.solicitations().is_empty()).expect("a solicitation within minutes")
}

#[test]
fn lost_question_is_repeated_within_tenth_of_second() {
    let address = "10.0.3.2".parse().unwrap();
    let (neighbours, number) = unknown(address);
    assert_eq!(rounds_to_solicitation(&neighbours), 1);
    // The solicitation or the reply is lost.
    let rounds = rounds_to_solicitation(&neighbours);
    assert!(ROUND * (rounds as u32) < Duration::from_millis(100), "{rounds} rounds");
    neighbours.process_reply(address, MacAddr::local(1)).unwrap();
    assert_eq!(neighbours.mac_of(number), Some(MacAddr::local(1)));
    assert_eq!(rounds_to_solicitation(&neighbours), CONFIRM);
}

#[test]
fn question_without_room_in_the_port_makes_no_neighbour_silent() {
    let [open, known] = ["10.0.3.2", "10.0.3.3"].map(|text| text.parse().unwrap());
    let (neighbours, number) = unknown(open);
    let other = neighbours.number(known).unwrap();
    neighbours.solicitations();
    neighbours.process_reply(known, MacAddr::local(1)).unwrap();
    let mut asked = [0; 2];
    for _ in 0..3 * CONFIRM {
        for (address, _) in neighbours.solicitations() {
            asked[usize::from(address == known)] += 1;
            neighbours.withdraw(address);
        }
    }
    assert!(asked[0] >= 3 * CONFIRM - 1 && asked[1] >= 2 * CONFIRM - 1, "{asked:?}");
    assert!(!neighbours.is_silent(number));
    assert_eq!(neighbours.mac_of(other), Some(MacAddr::local(1)));
    (0..7 * HALF_SECOND).for_each(|_| _ = neighbours.solicitations());
    assert!(neighbours.is_silent(number), "asked without a reply");
}

/// Bounds the solicitations, and so the time that a claim of another station has to wait.
#[test]
fn absent_neighbour_is_asked_at_limited_rate() {
    let (neighbours, number) = unknown("10.0.3.2".parse().unwrap());
    let mut round = 0;
    let mut asked = Vec::new();
    let mut silent = None;
    while round < 1200 * HALF_SECOND {
        round += rounds_to_solicitation(&neighbours);
        asked.push(round);
        silent = silent.or(neighbours.is_silent(number).then_some(round));
    }
    let pauses: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (early, late) = pauses.split_at(16);
    assert_eq!(*early, [1, 2, 4, 8, 10, 10, 10, 10, 10, 10, 20, 40, 80, 160, 320, 640]);
    assert!(late.iter().all(|pause| *pause == 640), "{late:?}");
    assert_eq!(silent, Some(1 + 65));
    // With one solicitation every half second for three seconds, there were 31 in ten minutes.
    assert!(asked.len() <= 31 + 3, "{}", asked.len());
}

/// However often the network mentions or claims an address.
#[test]
fn messages_cause_two_questions_each_second_at_most() {
    let address = "10.0.3.2".parse().unwrap();
    let [mac, other] = [MacAddr::local(1), MacAddr::local(2)];
    let (neighbours, number) = unknown(address);
    let rounds = 6 * HALF_SECOND;
    let check = |provoke: &dyn Fn()| {
        let round = |_| {
            provoke();
            neighbours.solicitations().len() as u64
        };
        let asked = (0..rounds).map(round).sum::<u64>();
        // The first half second has three more.
        assert!((3..=6 + 1 + 3).contains(&asked), "asked {asked} times in three seconds");
    };
    check(&|| neighbours.solicit_mentioned(address));
    check(&|| neighbours.solicit_mentioned(address));
    assert!(neighbours.is_silent(number));
    check(&|| neighbours.solicit_mentioned(address));
    neighbours.process_reply(address, mac).unwrap();
    check(&|| assert!(neighbours.process_reply(address, other).is_err()));
    assert_eq!(neighbours.mac_of(number), Some(mac), "it may still reply");
}

/// However many packets wait for a neighbour, known or not, and whatever the back-off.
#[test]
fn waiting_packets_cause_two_questions_each_second_at_most() {
    let (neighbours, number) = unknown("10.0.3.2".parse().unwrap());
    (0..2000).for_each(|_| _ = neighbours.solicitations());
    assert!(neighbours.is_silent(number));
    let mut all = Vec::new();
    for round in 0..6 * HALF_SECOND {
        neighbours.wait(number, false);
        let at_once = (0..100).filter_map(|_| neighbours.solicitation_for(number)).count();
        let count = at_once + neighbours.solicitations().len();
        all.extend(std::iter::repeat_n(round, count));
    }
    assert_eq!(all[0], 0, "asked at once");
    assert!((6..=7).contains(&all.len()), "{all:?}");
    assert!(all.windows(2).all(|pair| pair[1] - pair[0] >= HALF_SECOND - 1), "{all:?}");
    // Once no packet waits, solicitations are rare again.
    let waiting = neighbours.waiting() as u16;
    neighbours.leave(number, waiting, false);
    assert!(rounds_to_solicitation(&neighbours) > 10 * HALF_SECOND);
    neighbours.process_reply("10.0.3.2".parse().unwrap(), MacAddr::local(1)).unwrap();
    neighbours.wait(number, true);
    assert_eq!((neighbours.solicitation_for(number), neighbours.waiting()), (None, 0));
    assert_eq!(rounds_to_solicitation(&neighbours), CONFIRM);
}

/// All are asked in turn.
#[test]
fn questions_for_many_silent_neighbours_are_limited() {
    let neighbours = Neighbours::new().unwrap();
    let addresses = (0..1000u32).map(|it| IpAddr::from((0x0a00_0000 + it).to_be_bytes()));
    let numbers: Vec<_> = addresses.map(|it| neighbours.number(it).unwrap()).collect();
    numbers.iter().for_each(|number| neighbours.add_user(*number));
    (0..2000).for_each(|_| _ = neighbours.solicitations());
    let mut asked = std::collections::HashSet::new();
    for _ in 0..1000usize.div_ceil(SILENT_PER_ROUND) + 1 {
        let mut round = Vec::new();
        for number in &numbers {
            neighbours.wait(*number, false);
            round.extend(neighbours.solicitation_for(*number));
        }
        assert!(round.len() <= SILENT_PER_ROUND);
        let due = neighbours.solicitations();
        assert!(due.len() <= SILENT_PER_ROUND);
        asked.extend(round.into_iter().chain(due).map(|(address, _)| address));
    }
    assert_eq!(asked.len(), 1000);
}

#[test]
fn neighbour_is_kept_while_packets_wait_for_it() {
    let (neighbours, number) = unknown("10.0.3.2".parse().unwrap());
    neighbours.remove_user(number, 5);
    neighbours.wait(number, false);
    neighbours.remove_unused(5);
    let other = neighbours.number("10.0.3.3".parse().unwrap()).unwrap();
    assert_ne!(number, other);
    neighbours.leave(number, 1, false);
    neighbours.add_user(other);
    neighbours.remove_unused(5);
    assert_eq!(neighbours.number("10.0.3.4".parse().unwrap()), Some(number));
}

#[test]
fn filter_has_the_silent_neighbours() {
    let addresses: [IpAddr; 2] = ["10.0.3.2", "fd00:3::2"].map(|text| text.parse().unwrap());
    let neighbours = Neighbours::new().unwrap();
    addresses.iter().for_each(|address| _ = neighbours.number(*address).unwrap());
    assert!(!neighbours.has_silent());
    (0..200).for_each(|_| _ = neighbours.solicitations());
    assert!(neighbours.has_silent());
    assert!(addresses.iter().all(|address| neighbours.may_be_silent(*address)));
    let others = (0..1000u32).map(|it| IpAddr::from((0x0b00_0000 + it).to_be_bytes()));
    assert!(others.filter(|it| neighbours.may_be_silent(*it)).count() < 20);
    addresses.iter().for_each(|it| neighbours.process_reply(*it, MacAddr::local(1)).unwrap());
    neighbours.solicitations();
    assert!(!neighbours.has_silent() && !neighbours.may_be_silent(addresses[0]));
}

#[test]
fn open_questions_begin_again_with_a_peer() {
    let [open, known] = ["10.0.3.2", "10.0.3.3"].map(|text| text.parse().unwrap());
    let (neighbours, _) = unknown(open);
    neighbours.number(known).unwrap();
    neighbours.solicitations();
    neighbours.process_reply(known, MacAddr::local(1)).unwrap();
    (0..50 * HALF_SECOND).for_each(|_| _ = neighbours.solicitations());
    neighbours.restart();
    assert_eq!(neighbours.solicitations(), [(open, None)]);
    assert_eq!(neighbours.solicitations(), [(open, None)]);
}

#[test]
fn next_process_sends_to_known_neighbours_and_asks_them() {
    let addresses: [IpAddr; 4] =
        ["10.0.3.2", "fd00:3::2", "10.0.3.3", "10.0.3.4"].map(|text| text.parse().unwrap());
    let [mac, other] = [MacAddr::local(1), MacAddr::local(2)];
    let [own, next] = [(); 2].map(|()| Neighbours::new().unwrap());
    let numbers = addresses.map(|address| own.number(address).unwrap());
    numbers.iter().for_each(|number| own.add_user(*number));
    own.solicitations();
    addresses[..3].iter().for_each(|address| own.process_reply(*address, mac).unwrap());
    (0..=7 * HALF_SECOND).for_each(|_| _ = own.solicitations());
    assert!(own.is_silent(numbers[3]));
    let before = Neighbours::open(own.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let hops: Vec<_> =
        addresses.iter().rev().map(|address| next.number(*address).unwrap()).collect();
    next.configure(hops[1], other);
    next.resume(&before);
    let known = hops.iter().map(|hop| next.mac_of(*hop)).collect::<Vec<_>>();
    assert_eq!(known, [None, Some(other), Some(mac), Some(mac)]);
    assert!(!next.is_silent(hops[0]) && next.solicitations().contains(&(addresses[1], Some(mac))));
    assert!(next.process_reply(addresses[0], other).is_err());
    assert!(Neighbours::open(std::fs::File::open("/dev/null").unwrap().into()).is_err());
}
