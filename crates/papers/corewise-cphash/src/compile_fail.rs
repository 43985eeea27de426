//! Programs that must not compile, and the same ones with a line that is accepted.

use corewise_testkit::refused;

refused! {
    a_reference_borrows_its_table: "E0505",
        "use corewise_cphash::{Config, LockHash};
let table = LockHash::new(&Config::new(1 << 20)).unwrap();
let value = table.get_ref(1);",
        "",
        "drop(table);",
        "drop(value);";
    bytes_stay_in_the_closure_that_reads_them: "",
        "use corewise_cphash::{Config, LockHash};
let table = LockHash::new(&Config::new(1 << 20)).unwrap();",
        "let bytes = table.get(1, |value| value.to_vec());",
        "let bytes = table.get(1, |value| value);",
        "";
    // A client is not used while a reference that it gave out lives.
    a_remote_reference_borrows_its_client: "E0499",
        "use corewise_cphash::{Config, CpHash};
let table = CpHash::new(&Config::new(1 << 20).partitions(1), 0).unwrap();
let mut client = table.client();
let value = client.get_ref(1);",
        "",
        "client.remove(1);",
        "drop(value);";
    // The caller of a closure that a partition executes may leave.
    a_closure_for_a_partition_borrows_nothing: "",
        "use corewise_cphash::{Config, CpHash};
let table = CpHash::new(&Config::new(1 << 20).partitions(1), 0).unwrap();
let name = String::from(\"value\");",
        "table.client().execute(1, move |entry| entry.insert(name.as_bytes())).unwrap();",
        "table.client().execute(1, |entry| entry.insert(name.as_bytes())).unwrap();",
        "";
    // All threads that use a table share its hasher.
    hashers_are_shared: "E0277",
        "fn sent<T: Send>() {}",
        "sent::<corewise_cphash::Colocated<std::sync::Arc<u8>>>();",
        "sent::<corewise_cphash::Colocated<std::rc::Rc<u8>>>();",
        "";
}
