//! Tests of keys at the limit of their length and beyond it, for all operations of both tables. The
//! limit is lower here, so keys beyond it take no memory.

use std::hash::{BuildHasher, DefaultHasher};

use crate::cphash::{Client, Colocated, CpHash};
use crate::{Anderson, CacheRequest, Config, Eviction, InsertError, LockHash, RawLock, Reply};
use crate::{Entry, Ttas};

const LONGEST: usize = 100;
const LENGTHS: [usize; 6] = [0, LONGEST - 1, LONGEST, LONGEST + 1, LONGEST + 7, 5000];

fn config() -> Config {
    Config::new(1 << 20).partitions(3).pipeline(64)
}

/// Does not hash keys beyond the limit.
#[derive(Clone, Default)]
struct Strict;

impl BuildHasher for Strict {
    type Hasher = StrictHasher;
    fn build_hasher(&self) -> StrictHasher {
        StrictHasher(DefaultHasher::new())
    }
}

struct StrictHasher(DefaultHasher);

impl std::hash::Hasher for StrictHasher {
    fn finish(&self) -> u64 {
        self.0.finish()
    }
    fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= LONGEST);
        self.0.write(bytes);
    }
}

fn expected_insertion(len: usize) -> Result<(), InsertError> {
    match len {
        ..=LONGEST => Ok(()),
        _ => Err(InsertError::TooLarge),
    }
}

fn lock_hash<L: RawLock>(eviction: Eviction) {
    let config = config().eviction(eviction);
    let mut table = LockHash::<_, L>::with_hasher(&config, Strict).unwrap();
    table.identifier.longest = LONGEST;
    for len in LENGTHS {
        let (key, fits) = (&vec![7; len], len <= LONGEST);
        for value in [&b"value"[..], &[1; 500]] {
            assert_eq!(table.insert(key, value), expected_insertion(len));
            assert_eq!(table.get(key, |found| found == value), fits.then_some(true));
            assert_eq!(table.get_ref(key).is_some(), fits);
            assert_eq!(table.contains(key), fits);
            assert_eq!(table.remove(key), fits);
            let batch = [
                CacheRequest::Get(1.into()),
                CacheRequest::Insert(key.into(), value),
                CacheRequest::Get(key.into()),
                CacheRequest::Remove(key.into()),
            ];
            let mut outcomes = vec![None; batch.len()];
            table.execute_batch(&batch, |index, reply| outcomes[index] = Some(seen(&reply)));
            let outcomes: Vec<SeenReply> = outcomes.into_iter().flatten().collect();
            assert_eq!(outcomes[0], SeenReply::Missing);
            assert_eq!(outcomes[1..], expected_outcomes(len, value.len())[..3]);
        }
    }
    assert_eq!(table.stats().used_bytes, 0);
}

#[test]
fn a_lock_hash_contains_no_key_beyond_the_limit() {
    lock_hash::<Ttas>(Eviction::Lru);
    lock_hash::<Anderson>(Eviction::Lru);
    lock_hash::<Ttas>(Eviction::Random);
}

/// What a reply has told.
#[derive(Clone, Debug, PartialEq)]
enum SeenReply {
    Missing,
    Found(usize),
    Inserted(Result<(), InsertError>),
    Removed(bool),
    Executed(Executed),
}

/// What a closure has found: the lengths of the value before and after an insertion, its result,
/// and whether the key was removed.
#[derive(Clone, Debug, PartialEq)]
struct Executed {
    before: Option<usize>,
    inserted: Result<(), InsertError>,
    after: Option<usize>,
    removed: bool,
}

fn execute(entry: &mut Entry<'_>) -> Executed {
    Executed {
        before: entry.get().map(<[u8]>::len),
        inserted: entry.insert(&[3; 30]),
        after: entry.get().map(<[u8]>::len),
        removed: entry.remove(),
    }
}

fn seen(reply: &Reply<'_>) -> SeenReply {
    match reply {
        Reply::Missing => SeenReply::Missing,
        Reply::Found(value) => SeenReply::Found(value.len()),
        Reply::Inserted(result) => SeenReply::Inserted(*result),
        Reply::Removed(removed) => SeenReply::Removed(*removed),
        Reply::Executed(Ok(result)) => SeenReply::Executed(result.downcast_ref().cloned().unwrap()),
        Reply::Executed(Err(_)) => panic!("the closure does not panic"),
    }
}

/// Of an insertion, a lookup, a removal and a closure, in this order.
fn expected_outcomes(len: usize, value_len: usize) -> Vec<SeenReply> {
    let fits = len <= LONGEST;
    let found = match fits {
        true => SeenReply::Found(value_len),
        false => SeenReply::Missing,
    };
    let executed = Executed {
        before: None,
        inserted: expected_insertion(len),
        after: fits.then_some(30),
        removed: fits,
    };
    vec![
        SeenReply::Inserted(expected_insertion(len)),
        found,
        SeenReply::Removed(fits),
        SeenReply::Executed(executed),
    ]
}

/// `Client` or `Colocated`.
trait Submits {
    fn submit(&mut self, token: u64, request: CacheRequest<'_>) -> bool;
    fn submit_execute(&mut self, token: u64, key: &[u8]) -> bool;
    fn poll(&mut self, deliver: impl FnMut(u64, Reply<'_>));
    fn outstanding(&self) -> usize;
}

macro_rules! submits {
    ($type:ident) => {
        impl Submits for $type<Strict> {
            fn submit(&mut self, token: u64, request: CacheRequest<'_>) -> bool {
                $type::submit(self, token, request).is_ok()
            }
            fn submit_execute(&mut self, token: u64, key: &[u8]) -> bool {
                $type::submit_execute(self, token, key, execute).is_ok()
            }
            fn poll(&mut self, deliver: impl FnMut(u64, Reply<'_>)) {
                $type::poll(self, deliver);
            }
            fn outstanding(&self) -> usize {
                $type::outstanding(self)
            }
        }
    };
}
submits!(Client);
submits!(Colocated);

/// Everything that can be submitted, with outcomes in the order of submission.
fn check_submitted(submits: &mut impl Submits) {
    for (len, value_len) in LENGTHS.into_iter().flat_map(|len| [(len, 5), (len, 500)]) {
        let (key, value) = (&vec![7; len], &vec![1; value_len]);
        let mut outcomes = vec![None; 4];
        let mut keep = |token: u64, reply: Reply<'_>| {
            assert_eq!(outcomes[token as usize].replace(seen(&reply)), None);
        };
        let requests = [
            CacheRequest::Insert(key.into(), value),
            CacheRequest::Get(key.into()),
            CacheRequest::Remove(key.into()),
        ];
        for (token, request) in (0..).zip(requests) {
            while !submits.submit(token, request) {
                submits.poll(&mut keep);
            }
        }
        while !submits.submit_execute(3, key) {
            submits.poll(&mut keep);
        }
        while submits.outstanding() > 0 {
            submits.poll(&mut keep);
        }
        let outcomes: Vec<SeenReply> = outcomes.into_iter().flatten().collect();
        assert_eq!(outcomes, expected_outcomes(len, value_len));
    }
    // The pipeline bounds outcomes that no partition was asked for, too.
    let long = &vec![7; LONGEST + 1];
    let accepted = (0..).take_while(|_| submits.submit(0, CacheRequest::Get(long.into())));
    assert_eq!(accepted.count(), 64);
    assert!(!submits.submit(0, CacheRequest::Remove(long.into())));
    assert!(!submits.submit_execute(0, long));
    submits.poll(|_, reply| assert!(matches!(reply, Reply::Missing)));
    assert_eq!(submits.outstanding(), 0);
}

fn check_blocking(client: &mut Client<Strict>) {
    for len in LENGTHS {
        let (key, fits) = (&vec![7; len], len <= LONGEST);
        for value in [&b"value"[..], &[1; 500]] {
            assert_eq!(client.insert(key, value), expected_insertion(len));
            assert_eq!(
                client.get(key, |found| found == value),
                fits.then_some(true)
            );
            assert_eq!(client.get_ref(key).is_some(), fits);
            assert_eq!(client.remove(key), fits);
            let executed = SeenReply::Executed(client.execute(key, execute));
            assert_eq!(executed, expected_outcomes(len, 0)[3]);
            let batch = [
                CacheRequest::Insert(key.into(), value),
                CacheRequest::Get(key.into()),
                CacheRequest::Remove(key.into()),
            ];
            let mut outcomes = vec![None; batch.len()];
            client.execute_batch(&batch, |index, reply| outcomes[index] = Some(seen(&reply)));
            let outcomes: Vec<SeenReply> = outcomes.into_iter().flatten().collect();
            assert_eq!(outcomes, expected_outcomes(len, value.len())[..3]);
        }
    }
}

#[test]
fn a_cp_hash_contains_no_key_beyond_the_limit() {
    for (servers, inline, early) in (0..2)
        .flat_map(|servers| [(servers, false), (servers, true)])
        .flat_map(|(servers, inline)| [(servers, inline, false), (servers, inline, true)])
    {
        let config = config().inline_values(inline).early_outcomes(early);
        let mut table = CpHash::with_hasher(&config, servers, Strict).unwrap();
        table.set_longest_key(LONGEST);
        check_submitted(&mut table.client());
        check_blocking(&mut table.client());
        check_submitted(&mut table.colocated(|| ()));
        assert_eq!(table.stats().elements, 0);
    }
}

/// The real limit, with a length of which 32 bits are 3. The system does not map memory that nobody
/// touches.
#[cfg(target_pointer_width = "64")]
#[test]
fn the_longest_key_has_less_than_two_gigabytes() {
    let huge = vec![0; (1 << 32) + 3];
    let table = CpHash::new(&config(), 0).unwrap();
    let mut client = table.client();
    client.submit(0, CacheRequest::Get((&huge).into())).unwrap();
    client
        .submit(1, CacheRequest::Remove((&huge).into()))
        .unwrap();
    let insert = |entry: &mut Entry<'_>| entry.insert(b"value");
    client.submit_execute(2, &huge, insert).unwrap();
    client
        .submit(3, CacheRequest::Insert((&huge).into(), b""))
        .unwrap();
    let mut outcomes = 0;
    while client.outstanding() > 0 {
        client.poll(|_, reply| {
            outcomes += 1;
            match reply {
                Reply::Missing | Reply::Removed(false) => {}
                Reply::Inserted(Err(InsertError::TooLarge)) => {}
                Reply::Executed(Ok(result)) => {
                    let refused: Result<(), _> = Err(InsertError::TooLarge);
                    assert_eq!(result.downcast_ref(), Some(&refused));
                }
                other => panic!("{other:?}"),
            }
        });
    }
    assert_eq!(outcomes, 4);
    // Byte keys are accepted as before.
    client.submit(0, CacheRequest::Get("key".into())).unwrap();
    let first = &huge[..crate::MAX_KEY_BYTES + 1];
    assert!(!client.remove(first) && client.execute(first, |entry| entry.get().is_none()));
    let table = LockHash::new(&config()).unwrap();
    assert_eq!(table.insert(first, b""), Err(InsertError::TooLarge));
}
