//! Programs that must not compile, each followed by a twin that compiles.
//!
//! A twin differs in one line, which shows that the program is rejected for the intended reason.

/// A reference to a value does not outlive its table.
///
/// ```compile_fail,E0505
/// use corewise_cphash::{Config, LockHash};
/// let table = LockHash::new(&Config::new(1 << 20)).unwrap();
/// let value = table.get_ref(1);
/// drop(table);
/// drop(value);
/// ```
///
/// ```
/// use corewise_cphash::{Config, LockHash};
/// let table = LockHash::new(&Config::new(1 << 20)).unwrap();
/// let value = table.get_ref(1);
/// drop(value);
/// drop(table);
/// ```
struct ValueRefBorrowsTheTable;

/// Bytes do not outlive the closure that reads them.
///
/// ```compile_fail
/// use corewise_cphash::{Config, LockHash};
/// let table = LockHash::new(&Config::new(1 << 20)).unwrap();
/// let bytes = table.get(1, |value| value);
/// ```
///
/// ```
/// use corewise_cphash::{Config, LockHash};
/// let table = LockHash::new(&Config::new(1 << 20)).unwrap();
/// let bytes = table.get(1, |value| value.to_vec());
/// ```
struct BytesStayInTheClosure;

/// A client is not used while a reference that it gave out lives.
///
/// ```compile_fail,E0499
/// use corewise_cphash::{Config, CpHash};
/// let table = CpHash::new(&Config::new(1 << 20).partitions(1), 0).unwrap();
/// let mut client = table.client();
/// let value = client.get_ref(1);
/// client.remove(1);
/// drop(value);
/// ```
///
/// ```
/// use corewise_cphash::{Config, CpHash};
/// let table = CpHash::new(&Config::new(1 << 20).partitions(1), 0).unwrap();
/// let mut client = table.client();
/// let value = client.get_ref(1);
/// drop(value);
/// client.remove(1);
/// ```
struct RemoteRefBorrowsTheClient;

/// A closure that a partition executes borrows nothing from its caller, who may leave.
///
/// ```compile_fail
/// use corewise_cphash::{Config, CpHash};
/// let table = CpHash::new(&Config::new(1 << 20).partitions(1), 0).unwrap();
/// let name = String::from("value");
/// table.client().execute(1, |entry| entry.insert(name.as_bytes())).unwrap();
/// ```
///
/// ```
/// use corewise_cphash::{Config, CpHash};
/// let table = CpHash::new(&Config::new(1 << 20).partitions(1), 0).unwrap();
/// let name = String::from("value");
/// table.client().execute(1, move |entry| entry.insert(name.as_bytes())).unwrap();
/// ```
struct ClosuresBorrowNothing;
