//! The cache of scripts, and their first lines.

mod bounds;
pub(super) mod looks;

use super::cache::{MAX_BYTES, MAX_SCRIPTS, Script, Scripts};
use super::patterns::{Failure, Matcher};
use super::watchdog::Watchdog;
use super::{Kill, Limits, digest};
use std::sync::Arc;
use std::time::Instant;

fn scripts() -> Scripts {
    Scripts::new(3, Limits { memory: 1 << 20 })
}

fn kept(scripts: &Scripts, text: &[u8]) -> Arc<Script> {
    let script = scripts.find_or_parse(text).unwrap();
    scripts.keep(&script);
    script
}

#[test]
fn the_cache_forgets_the_scripts_that_were_not_used_for_longest() {
    let scripts = scripts();
    let first = kept(&scripts, b"return 'first'");
    let second = kept(&scripts, b"return 'second'");
    for number in 2..MAX_SCRIPTS {
        kept(&scripts, format!("return {number}").as_bytes());
    }
    assert!(scripts.find(&first.digest).is_some());
    kept(&scripts, b"return 'one more'");
    assert!(scripts.find(&first.digest).is_some());
    assert!(scripts.find(&second.digest).is_none());
    assert_eq!(scripts.size().0, MAX_SCRIPTS as u64);
    scripts.flush();
    assert!(scripts.find(&first.digest).is_none());
    assert_eq!(scripts.size(), (0, 0));
}

#[test]
fn the_texts_of_the_cache_are_bounded() {
    let scripts = scripts();
    let long = |byte: u8| vec![byte; MAX_BYTES / 2 + 1];
    let first = kept(&scripts, &long(b'a'));
    let second = kept(&scripts, &long(b'b'));
    assert!(scripts.find(&first.digest).is_none());
    assert!(scripts.find(&second.digest).is_some());
    let longest = kept(&scripts, &vec![b'c'; MAX_BYTES + 1]);
    assert!(scripts.find(&longest.digest).is_none());
    assert!(scripts.find(&second.digest).is_some());
}

#[test]
fn digests_are_found_in_any_case() {
    let script = kept(&scripts(), b"return 1");
    let shown = b"E0E1F9FABFC9D4800C877A703B823AC0578FF8DB";
    assert_eq!(digest(shown), Some(script.digest));
    assert_eq!(digest(&shown[1..]), None);
}

#[test]
fn only_a_script_that_has_not_written_is_killed() {
    let scripts = scripts();
    let state = scripts.run_state(1);
    assert_eq!(scripts.kill(0), Kill::NothingRuns);
    state.begin();
    assert_eq!(scripts.kill(1), Kill::NothingRuns, "its own loop");
    assert_eq!(scripts.kill(0), Kill::Done);
    assert!(!state.may_write());
    state.end();
    state.begin();
    assert!(state.may_write());
    assert_eq!(scripts.kill(0), Kill::HasWritten);
    assert!(!state.is_killed());
}

#[test]
fn each_script_that_runs_is_killed() {
    let scripts = scripts();
    let states = [1, 2].map(|index| scripts.run_state(index));
    for state in &states {
        state.begin();
    }
    assert_eq!([scripts.kill(0), scripts.kill(0)], [Kill::Done; 2]);
    assert!(states.iter().all(|state| state.is_killed()));
    assert_eq!(scripts.kill(0), Kill::WasKilled);
}

#[test]
fn a_pattern_ends_with_the_time_of_its_script() {
    let watchdog = Watchdog::new(Arc::default());
    watchdog.begin(Some(Instant::now()));
    let (text, pattern) = ([b'a'; 300], b".-.-.-.-.-.-.-b");
    let matched = Matcher::new(&text, pattern, &watchdog).matches_at(0);
    assert!(matches!(matched, Err(Failure::Stopped(_))), "{matched:?}");
}
