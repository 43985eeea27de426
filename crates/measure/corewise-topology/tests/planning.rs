//! Policies: their names, and the CPUs that they assign.

use crate::common;

use common::Fake;
use corewise_topology::{PinPolicy, Topology, format_cpu_list, parse_cpu_list, plan};

fn places(machine: &Topology, policy: &str, threads: usize) -> Vec<usize> {
    let policy = policy.parse().unwrap();
    plan(machine, &policy, threads)
        .into_iter()
        .map(|place| place.unwrap().0)
        .collect()
}

fn two_sockets() -> Topology {
    Topology::read_from(Fake::two_sockets().root(), None)
}

#[test]
fn compact_fills_a_socket_before_the_next() {
    let expected = [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15];
    assert_eq!(places(&two_sockets(), "compact", 16), expected);
}

#[test]
fn compact_fills_a_node_before_the_next_of_its_socket() {
    let machine = Topology::regular(2, 2, 2, 2);
    assert_eq!(
        places(&machine, "compact", 16),
        [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]
    );
    assert_eq!(machine.node_ends(), [4, 8, 12, 16]);
    assert_eq!(machine.group_ends(|cpu| cpu.package), [8, 16]);
}

#[test]
fn balanced_takes_sockets_in_turn_and_siblings_last() {
    let expected = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    assert_eq!(places(&two_sockets(), "balanced", 16), expected);
}

#[test]
fn smt_pair_puts_neighbouring_threads_on_one_core() {
    assert_eq!(places(&two_sockets(), "smt-pair", 6), [0, 8, 2, 10, 4, 12]);
    assert_eq!(places(&Topology::flat(4), "smt-pair", 4), [0, 1, 2, 3]);
}

/// Guarantee 2.
#[test]
fn plans_keep_to_the_allowed_cpus() {
    // Only the second hardware thread of core 0 is allowed: it is still assigned in the first
    // round.
    let machine = Topology::read_from(Fake::two_sockets().root(), Some(&[8, 1, 2, 10]));
    assert_eq!(places(&machine, "compact", 4), [8, 2, 10, 1]);
    assert_eq!(places(&machine, "balanced", 4), [8, 1, 2, 10]);
}

/// Guarantee 3.
#[test]
fn more_threads_than_cpus_start_over() {
    assert_eq!(places(&Topology::flat(2), "balanced", 5), [0, 1, 0, 1, 0]);
    assert_eq!(places(&Topology::flat(2), "list:7,3", 3), [7, 3, 7]);
}

#[test]
fn no_policy_names_no_cpu() {
    assert_eq!(plan(&two_sockets(), &PinPolicy::None, 3), [None; 3]);
    assert_eq!(plan(&two_sockets(), &PinPolicy::List(vec![]), 1), [None]);
    assert!(plan(&two_sockets(), &PinPolicy::Compact, 0).is_empty());
}

#[test]
fn policies_are_read_as_they_are_written() {
    for text in [
        "none",
        "compact",
        "balanced",
        "smt-pair",
        "list:0,2-5",
        "list:9,3",
    ] {
        assert_eq!(text.parse::<PinPolicy>().unwrap().to_string(), text);
    }
    assert_eq!("default".parse(), Ok(PinPolicy::None));
}

#[test]
fn a_wrong_policy_says_why() {
    let error = |text: &str| text.parse::<PinPolicy>().unwrap_err().to_string();
    assert!(error("spread").contains("`spread` is not one of none, default, compact"));
    assert!(error("list:").contains("names no CPU"));
    assert!(error("list:x").contains("`x` is not a CPU number"));
    assert!(error("list:5-2").contains("ends before it starts"));
    assert!(error("list:0-99999999").contains("not a CPU number below"));
}

#[test]
fn cpu_lists_go_both_ways() {
    for (text, cpus) in [
        ("", vec![]),
        ("3", vec![3]),
        ("0-2,7,9-10", vec![0, 1, 2, 7, 9, 10]),
    ] {
        assert_eq!(parse_cpu_list(text).unwrap(), cpus);
        assert_eq!(format_cpu_list(&cpus), text);
    }
}
