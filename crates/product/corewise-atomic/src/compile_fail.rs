//! Programs that must not compile, each in a twin that does.
//!
//! A row has the lines before, the line that is accepted, the line that must be refused in its
//! place with this error, and the lines after. So the refused line is the reason of the error. The
//! error codes are checked with `RUSTDOC=.ci/rustdoc`. `tests/auto_traits.rs` states for every
//! public type whether it is `Send` and `Sync`.

use corewise_testkit::refused;

// Cells and locks are written through shared references, so their types are not covariant: a value
// that is stored must live as long as one that is read.
refused! {
    cells_are_invariant: "E0597",
        "use corewise_atomic::cell::DataCell;
let place: DataCell<&'static str> = DataCell::new(\"\");
{
    let text = String::from(\"short\");",
        "    unsafe { place.write(\"long\") };",
        "    unsafe { place.write(&text) };",
        "}
assert_ne!(unsafe { place.read() }, \"\");";
    mutexes_are_invariant: "E0597",
        "use corewise_atomic::lock::Mutex;
let place: Mutex<&'static str> = Mutex::new(\"\");
{
    let text = String::from(\"short\");",
        "    *place.lock() = \"long\";",
        "    *place.lock() = &text;",
        "}
assert_ne!(*place.lock(), \"\");";
    readers_writer_locks_are_invariant: "E0597",
        "use corewise_atomic::lock::RwLock;
let place: RwLock<&'static str> = RwLock::new(\"\");
{
    let text = String::from(\"short\");",
        "    *place.write() = \"long\";",
        "    *place.write() = &text;",
        "}
assert_ne!(*place.read(), \"\");";
}

refused! {
    a_reference_to_the_value_borrows_the_guard: "E0505",
        "use corewise_atomic::lock::Mutex;
let mutex = Mutex::new(1);
let guard = mutex.lock();
let value = &*guard;",
        "let _ = &guard;",
        "drop(guard);",
        "assert_eq!(*value, 1);";
    a_guard_borrows_its_mutex: "E0505",
        "use corewise_atomic::lock::Mutex;
let mutex = Mutex::new(1);
let guard = mutex.lock();",
        "let _ = &mutex;",
        "drop(mutex);",
        "assert_eq!(*guard, 1);";
    // Something else must keep accesses apart.
    reading_a_cell_is_unsafe: "E0133",
        "use corewise_atomic::cell::DataCell;
let cell = DataCell::new(1);",
        "let value = unsafe { cell.read() };",
        "let value = cell.read();",
        "assert_eq!(value, 1);";
    // Safe code creates them only of types for which all zero bits are a valid value.
    zeroed_slots_are_of_few_types: "E0277",
        "use corewise_atomic::Slots;
use corewise_atomic::sync::atomic::AtomicPtr;",
        "let slots: Slots<AtomicPtr<u8>> = Slots::zeroed(1);",
        "let slots: Slots<&u8> = Slots::zeroed(1);",
        "assert_eq!(slots.len(), 1);";
    // The caller must have seen `prepare` return true.
    a_prepared_barrier_is_unsafe: "E0133",
        "assert!(corewise_atomic::barrier::prepare() || cfg!(not(target_os = \"linux\")));",
        "corewise_atomic::barrier::light();",
        "corewise_atomic::barrier::light_prepared();",
        "";
}
