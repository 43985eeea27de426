//! Programs that must not compile, and the same ones with a line that is accepted. That guards stay
//! on their thread, and which locks are shared, is in `tests/promises.rs`.

use corewise_testkit::refused;

refused! {
    a_guard_does_not_outlive_its_lock: "E0597",
        "use corewise_locks::{Lock, LockGuard};
let outer: Lock<u32> = Lock::new(0);
let guard: LockGuard<'_, u32> = {
    let lock: Lock<u32> = Lock::new(0);",
        "    drop(lock.lock()); outer.lock()",
        "    drop(outer.lock()); lock.lock()",
        "};
drop(guard);";
    // Sections share the value with others.
    a_section_needs_a_value_that_may_be_shared: "E0277",
        "use corewise_locks::{Mcs, elide::{Elided, Retry}};",
        "type Number = std::sync::atomic::AtomicU32;",
        "type Number = std::cell::Cell<u32>;",
        "let value: Elided<Number, Mcs, Retry> = Elided::new(Number::new(0), None);
value.run(|_, _| ());";
    only_opaque_policies_give_exclusive_access: "E0599",
        "use corewise_locks::{Mcs, elide::{Elided, Retry, Slr}};",
        "type Policy = Retry;",
        "type Policy = Slr;",
        "let value: Elided<u32, Mcs, Policy> = Elided::new(0, None);
value.run_mut(|value| *value += 1);";
    a_value_does_not_leave_its_section: "",
        "use corewise_locks::{Mcs, elide::{Elided, Retry}};
let value: Elided<Vec<u32>, Mcs, Retry> = Elided::new(vec![1], None);",
        "let copied: u32 = value.run(|value, _| value[0]);",
        "let escaped: &u32 = value.run(|value, _| &value[0]);",
        "";
    an_exclusive_reference_does_not_leave_its_section: "",
        "use corewise_locks::{Mcs, elide::{Elided, Retry}};
let value: Elided<Vec<u32>, Mcs, Retry> = Elided::new(vec![1], None);",
        "let copied: u32 = value.run_mut(|value| value[0]);",
        "let escaped: &mut u32 = value.run_mut(|value| &mut value[0]);",
        "";
    // What a transaction stores to lives as long as the value.
    a_section_stores_to_its_value_only: "E0597",
        "use corewise_locks::{Mcs, elide::{Elided, Retry, Scripted}};
use std::sync::atomic::AtomicU32;
let value: Elided<AtomicU32, Mcs, Retry, Scripted> =
    Elided::new(AtomicU32::new(0), Some(Scripted::new()));
value.run(|value, tx| {
    let short = AtomicU32::new(0);",
        "    tx.store(value, 1);",
        "    tx.store(&short, 1);",
        "});";
}
