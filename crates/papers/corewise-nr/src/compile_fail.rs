//! Programs that must not compile, and the same ones with a line that is accepted.

use corewise_testkit::refused;

refused! {
    // Several threads execute an operation, at the same time.
    writes_are_shared: "E0277",
        "use corewise_nr::Sequential;",
        "type Number = std::sync::Arc<u64>;",
        "type Number = std::rc::Rc<u64>;",
        "struct Sum(u64);
impl Sequential for Sum {
    type Read = ();
    type Write = Number;
    type Response = u64;
    fn read(&self, (): &()) -> u64 { self.0 }
    fn write(&mut self, more: &Number) -> u64 { self.0 += **more; self.0 }
}";
    // A combiner hands responses over to other threads.
    responses_are_sent: "E0277",
        "use corewise_nr::Sequential;",
        "type Number = std::sync::Arc<u64>;",
        "type Number = std::rc::Rc<u64>;",
        "struct Sum(u64);
impl Sequential for Sum {
    type Read = ();
    type Write = u64;
    type Response = Number;
    fn read(&self, (): &()) -> Number { self.0.into() }
    fn write(&mut self, more: &u64) -> Number { self.0 += more; self.0.into() }
}";
    // Several threads read a replica at a time.
    structures_are_shared: "E0277",
        "use corewise_nr::Sequential;",
        "type Reads = std::sync::atomic::AtomicU64;",
        "type Reads = std::cell::Cell<u64>;",
        "struct Counted(Reads);
impl Sequential for Counted {
    type Read = ();
    type Write = ();
    type Response = ();
    fn read(&self, (): &()) {}
    fn write(&mut self, (): &()) {}
}";
    // What a closure borrows from a replica ends with the closure: the next write changes it.
    borrows_end_with_the_read: "E0521",
        "let set = corewise_nr::NodeReplicated::new(|_| corewise_nr::SortedSet::new());
let mut first = None;",
        "set.read_with(|set| first = set.iter().next().map(|(member, score)| (member.to_vec(), score)));",
        "set.read_with(|set| first = set.iter().next());",
        "assert!(first.is_none());";
    handles_borrow_the_structure: "E0505",
        "let set = corewise_nr::NodeReplicated::new(|_| corewise_nr::SortedSet::new());
let handle = set.handle(None).unwrap();",
        "drop(set.handle(None));",
        "drop(set);",
        "assert!(handle.read_with(|set| set.is_empty()));";
    // A handle has a slot to itself, so one thread uses it at a time.
    handles_are_not_shared: "E0277",
        "let set = corewise_nr::NodeReplicated::new(|_| corewise_nr::SortedSet::new());
let handle = set.handle(None).unwrap();
std::thread::scope(|scope| {",
        "scope.spawn(move || handle.read_with(|set| set.len()));",
        "scope.spawn(|| handle.read_with(|set| set.len()));",
        "});";
}
