//! Programs that must not compile, each in a twin that does and differs in one line.

use corewise_testkit::refused;

refused! {
    a_cache_is_sent_with_what_may_be_shared: "E0277",
        "let cache = corewise_cache::Cache::new(10);",
        "let value = std::sync::Arc::new(1);",
        "let value = std::rc::Rc::new(1);",
        "cache.insert(1, value).unwrap();
std::thread::spawn(move || drop(cache)).join().unwrap();";
    // Whichever thread removes an entry calls it.
    a_listener_is_shared: "E0277",
        "use corewise_cache::Cache;
let builder = Cache::<u64, u64>::builder(10);",
        "let count = std::sync::Arc::new(());",
        "let count = std::rc::Rc::new(());",
        "drop(builder.eviction_listener(move |_, _, _| drop(count.clone())));";
    a_listener_borrows_nothing: "E0597",
        "let text = String::from(\"short\");
let builder = corewise_cache::Cache::<u64, u64>::builder(10);",
        "let text = text.clone();",
        "let text = text.as_str();",
        "drop(builder.eviction_listener(move |_, _, _| assert!(!text.is_empty())));";
}
