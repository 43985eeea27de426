//! A set of blocked addresses: workers look each request's sender up, while an operator blocks and
//! unblocks networks. A worker never waits for the operator.
//!
//! ```text
//! cargo run --release -p corewise-maps --example blocklist
//! ```

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use corewise_maps::RelativisticSet;

/// Always blocked.
const HOSTILE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
/// Never blocked.
const FRIEND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// All addresses of a network of 256.
fn network(third: u8) -> impl Iterator<Item = Ipv4Addr> {
    (0..=255).map(move |last| Ipv4Addr::new(198, 51, third, last))
}

fn main() {
    let blocked = RelativisticSet::from([HOSTILE]);
    let (is_over, refused, served) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let last_round = is_over.load(Relaxed);
                    // One handle for a batch of requests.
                    let blocked = blocked.pin();
                    for sender in [HOSTILE, FRIEND] {
                        let count = if blocked.contains(&sender) {
                            &refused
                        } else {
                            &served
                        };
                        count.fetch_add(1, Relaxed);
                    }
                    if last_round {
                        break;
                    }
                }
            });
        }
        // The operator: 100 networks are blocked, and all but every tenth unblocked again.
        for third in 0..100 {
            (&blocked).extend(network(third));
        }
        blocked
            .pin()
            .retain(|address| *address == HOSTILE || address.octets()[2] % 10 == 0);
        is_over.store(true, Relaxed);
    });

    // Each round has refused one request and served one.
    assert_eq!(refused.load(Relaxed), served.load(Relaxed));
    assert!(refused.into_inner() >= 2);
    assert_eq!(blocked.len(), 1 + 10 * 256);
    let kept: RelativisticSet<Ipv4Addr> = network(90).collect();
    let freed: RelativisticSet<Ipv4Addr> = network(91).collect();
    assert!(kept.pin().is_subset(&blocked.pin()));
    assert!(freed.pin().is_disjoint(&blocked.pin()));
    println!("{} addresses are blocked", blocked.len());
}
