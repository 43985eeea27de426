//! Programs that must not compile, each in a twin that does.
//!
//! A row has the lines before, the line that is accepted, the line that must be refused in its
//! place with this error, and the lines after. So the refused line is the reason of the error. The
//! error codes are checked with `RUSTDOC=.ci/rustdoc`. `tests/auto_traits.rs` states for every
//! public type whether it is `Send` and `Sync`.

use corewise_testkit::refused;

// Guards and handles borrow their domain, and no lifetime can be lengthened.
refused! {
    a_guard_borrows_its_domain: "E0505",
        "let domain = corewise_rcu::Domain::new();
let guard = domain.pin();",
        "drop(domain.clone());",
        "drop(domain);",
        "drop(guard);";
    a_guard_is_not_lengthened: "E0597",
        "use corewise_rcu::{Domain, Guard};
let domain = Domain::new();",
        "let guard: Guard<'_> = domain.pin();",
        "let guard: Guard<'static> = domain.pin();",
        "";
    a_handle_is_not_lengthened: "E0597",
        "use corewise_rcu::{Domain, Qsbr};
let domain = Domain::new();",
        "let qsbr: Qsbr<'_> = domain.qsbr();",
        "let qsbr: Qsbr<'static> = domain.qsbr();",
        "";
    a_section_is_not_lengthened: "E0597",
        "use corewise_rcu::{Domain, QsbrGuard};
let qsbr = Domain::global().qsbr();",
        "let section: QsbrGuard<'_> = qsbr.section();",
        "let section: QsbrGuard<'static> = qsbr.section();",
        "";
}

// No section lives across a quiescent state.
refused! {
    a_quiescent_state_ends_sections: "E0502",
        "use corewise_rcu::Section;
let mut qsbr = corewise_rcu::Domain::global().qsbr();
let section = qsbr.section();",
        "let _ = &qsbr;",
        "qsbr.quiescent();",
        "section.reader_index();";
    going_offline_ends_sections: "E0502",
        "use corewise_rcu::Section;
let mut qsbr = corewise_rcu::Domain::global().qsbr();
let section = qsbr.section();",
        "let _ = &qsbr;",
        "qsbr.offline(|| ());",
        "section.reader_index();";
    waiting_ends_sections: "E0502",
        "use corewise_rcu::Section;
let mut qsbr = corewise_rcu::Domain::global().qsbr();
let section = qsbr.section();",
        "let _ = &qsbr;",
        "let _ = qsbr.synchronize();",
        "section.reader_index();";
    a_handle_that_is_offline_has_no_section: "E0502",
        "let mut qsbr = corewise_rcu::Domain::global().qsbr();",
        "qsbr.offline(|| drop(corewise_rcu::pin()));",
        "qsbr.offline(|| drop(qsbr.section()));",
        "";
}

// `defer_drop` takes no box: moving a box asserts exclusive access to its contents, which readers
// may still use. The caller must guarantee that the pointer is valid, so it is unsafe. What is
// deferred may be dropped by another thread, when the caller's frame and its domain are gone.
refused! {
    no_box_is_deferred: "E0308",
        "use std::ptr::NonNull;",
        "let object = NonNull::from(Box::leak(Box::new(1)));",
        "let object = Box::new(1);",
        "unsafe { corewise_rcu::Domain::global().defer_drop(object) };";
    no_box_is_deferred_by_a_call_that_may_fail: "E0308",
        "use std::ptr::NonNull;",
        "let object = NonNull::from(Box::leak(Box::new(1)));",
        "let object = Box::new(1);",
        "let _ = unsafe { corewise_rcu::Domain::global().try_defer_drop(object) };";
    deferring_a_drop_is_unsafe: "E0133",
        "let object = std::ptr::NonNull::from(Box::leak(Box::new(1)));",
        "unsafe { corewise_rcu::Domain::global().defer_drop(object) };",
        "corewise_rcu::Domain::global().defer_drop(object);",
        "";
    a_deferred_closure_is_sent: "E0277",
        "",
        "let object = std::sync::Arc::new(1);",
        "let object = std::rc::Rc::new(1);",
        "corewise_rcu::Domain::global().defer(8, move || drop(object));";
    a_deferred_object_is_sent: "E0277",
        "use std::ptr::NonNull;",
        "let object = NonNull::from(Box::leak(Box::new(std::sync::Arc::new(1))));",
        "let object = NonNull::from(Box::leak(Box::new(std::rc::Rc::new(1))));",
        "unsafe { corewise_rcu::Domain::global().defer_drop(object) };";
    a_deferred_closure_borrows_nothing: "E0597",
        "let text = String::from(\"short\");",
        "let text = text.clone();",
        "let text = text.as_str();",
        "corewise_rcu::Domain::global().defer(8, move || drop(text));";
    // Reclamation relies on the promises of a section.
    sections_are_unsafe_to_implement: "E0200",
        "struct Mine;",
        "unsafe impl corewise_rcu::Section for Mine {",
        "impl corewise_rcu::Section for Mine {",
        "    fn domain_id(&self) -> u64 { 1 }
    fn reader_index(&self) -> usize { 0 }
}";
}

// A reference from a cell outlives neither the guard that it was found under nor the cell, which
// drops its value without waiting.
refused! {
    a_value_borrows_the_guard: "E0505",
        "let cell = corewise_rcu::RcuCell::new(1);
let guard = corewise_rcu::pin();",
        "let value = &{ *cell.within(&guard) };",
        "let value = cell.within(&guard);",
        "drop(guard);
assert_eq!(*value, 1);";
    a_value_borrows_a_temporary_guard: "E0515",
        "use corewise_rcu::RcuCell;",
        "fn find(cell: &RcuCell<u8>) -> u8 { *cell.load() }",
        "fn find(cell: &RcuCell<u8>) -> &u8 { &*cell.load() }",
        "";
    a_value_borrows_the_cell: "E0505",
        "let guard = corewise_rcu::pin();
let cell = corewise_rcu::RcuCell::new(1);",
        "let value = &{ *cell.within(&guard) };",
        "let value = cell.within(&guard);",
        "drop(cell);
assert_eq!(*value, 1);";
    a_guard_borrows_the_cell: "E0502",
        "let mut cell = corewise_rcu::RcuCell::new(1);",
        "let value = Box::new(*cell.load());",
        "let value = cell.load();",
        "*cell.get_mut() = 2;
assert_eq!(*value, 1);";
    a_guard_of_a_part_borrows_the_cell: "E0502",
        "use corewise_rcu::{CellGuard, RcuCell};
let mut cell = RcuCell::new((1, 2));",
        "let value = Box::new(cell.load().0);",
        "let value = CellGuard::map(cell.load(), |pair| &pair.0);",
        "cell.get_mut().0 = 2;
assert_eq!(*value, 1);";
    a_part_is_one_of_the_value: "",
        "use corewise_rcu::{CellGuard, RcuCell};
let (cell, other) = (RcuCell::new(1), 2);",
        "let value = CellGuard::map(cell.load(), |value| value);",
        "let value = CellGuard::map(cell.load(), |_| &other);",
        "assert_eq!(*value, 1);";
    a_value_stays_in_the_closure_that_reads_it: "",
        "let cell = corewise_rcu::RcuCell::new(1);",
        "let value: i32 = cell.read(|value| *value);",
        "let value: &i32 = cell.read(|value| value);",
        "";
}

// A replaced value may be dropped by another thread, and after what the caller has borrowed is
// gone. Neither a longer nor a shorter lifetime may be put into the place of that of a cell's
// value.
refused! {
    a_replaced_value_is_sent: "E0599",
        "use std::{rc::Rc, sync::Arc};",
        "let (old, new) = (Arc::new(1), Arc::new(2));",
        "let (old, new) = (Rc::new(1), Rc::new(2));",
        "corewise_rcu::RcuCell::new(old).store(new);";
    a_replaced_value_borrows_nothing: "E0597",
        "let text = String::from(\"short\");
let cell = corewise_rcu::RcuCell::new(\"long\");",
        "cell.store(\"short\");",
        "cell.store(text.as_str());",
        "";
    a_cell_is_invariant: "",
        "use corewise_rcu::RcuCell;",
        "fn same<'s>(cell: &'s RcuCell<&'static str>) -> &'s RcuCell<&'static str> { cell }",
        "fn same<'s>(cell: &'s RcuCell<&'static str>) -> &'s RcuCell<&'s str> { cell }",
        "";
    // Any thread calls it, for as long as the process runs.
    a_stall_hook_is_shared: "E0277",
        "",
        "let count = std::sync::Arc::new(());",
        "let count = std::rc::Rc::new(());",
        "let _ = corewise_rcu::set_stall_hook(move |_| { let _ = &count; });";
}
