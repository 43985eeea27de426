//! A routing table that is read for every packet and rarely changed: readers take a snapshot of a
//! route by reference, while another thread changes routes, and none of them waits.
//!
//! The longest prefix of an address that has a route decides.
//!
//! ```text
//! cargo run --release -p corewise-maps --example routing_table
//! ```

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use corewise_maps::RelativisticMap;
use corewise_maps::relativistic::{MapRef, Operation};

/// The first `len` bits of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Prefix {
    bits: u32,
    len: u8,
}

impl Prefix {
    fn of(address: Ipv4Addr, len: u8) -> Self {
        let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
        Self {
            bits: address.to_bits() & mask,
            len,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Route {
    interface: String,
    metric: u32,
}

fn route(interface: &str, metric: u32) -> Route {
    Route {
        interface: interface.to_owned(),
        metric,
    }
}

/// The route of the longest prefix that has one.
fn find<'h>(routes: &'h MapRef<'_, Prefix, Route>, address: Ipv4Addr) -> Option<&'h Route> {
    let prefixes = (0..=32).rev().map(|len| Prefix::of(address, len));
    prefixes.into_iter().find_map(|prefix| routes.get(&prefix))
}

/// Takes a route if it is better than the present one; returns whether it was taken.
fn offer(routes: &RelativisticMap<Prefix, Route>, to: Prefix, new: &Route) -> bool {
    let routes = routes.pin();
    let decide = |present: Option<(&Prefix, &Route)>| match present {
        Some((_, old)) if old.metric <= new.metric => Operation::Abort(()),
        _ => Operation::Insert(new.clone()),
    };
    !matches!(
        routes.compute(to, decide),
        corewise_maps::relativistic::Compute::Aborted(_)
    )
}

fn main() {
    let address = Ipv4Addr::new(10, 1, 2, 3);
    let routes = RelativisticMap::from([
        (Prefix::of(address, 0), route("uplink", 100)),
        (Prefix::of(address, 8), route("lan", 10)),
    ]);
    assert_eq!(find(&routes.pin(), address), Some(&route("lan", 10)));
    assert!(!offer(&routes, Prefix::of(address, 8), &route("slow", 20)));
    assert!(offer(&routes, Prefix::of(address, 8), &route("fast", 5)));

    let done = AtomicBool::new(false);
    let packets: u64 = std::thread::scope(|scope| {
        let readers = [0, 1].map(|_| {
            scope.spawn(|| {
                let mut packets = 0;
                while !done.load(Relaxed) {
                    // A handle for each packet, so that replaced routes are freed.
                    let routes = routes.pin();
                    let interface = &find(&routes, address).expect("there is one").interface;
                    assert!(["fast", "spare"].contains(&interface.as_str()));
                    packets += 1;
                }
                packets
            })
        });
        for _ in 0..2_000 {
            routes.insert(Prefix::of(address, 24), route("spare", 1));
            routes.remove(&Prefix::of(address, 24));
        }
        done.store(true, Relaxed);
        readers
            .map(|reader| reader.join().expect("no panic"))
            .iter()
            .sum()
    });

    assert_eq!(find(&routes.pin(), address), Some(&route("fast", 5)));
    assert_eq!(
        find(&routes.pin(), Ipv4Addr::LOCALHOST),
        Some(&route("uplink", 100))
    );
    println!("{packets} packets while a route came and went 2000 times");
}
