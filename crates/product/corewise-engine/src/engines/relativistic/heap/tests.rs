//! The heap alone, with one thread.

use super::*;
use crate::engines::relativistic::queues::Queue;
use crate::item::{self, Contents};
use corewise_ops::Now;
use corewise_rcu::Builder;

const MEMORY: u64 = 1 << 20;
const NEWEST: Queue = Queue::Main;

fn heap() -> (Heap, Domain) {
    let heap = Heap::new(MEMORY, false, true).expect("addresses");
    (heap, Builder::default().build("test"))
}

fn write(memory: NonNull<u8>, value: &[u8]) -> Ptr {
    let contents = Contents::new(b"key", value, 0, corewise_ops::Deadline::NEVER);
    let now = Now::new(5_000, 0);
    // SAFETY: the tests append the number of bytes that the item takes.
    unsafe { item::write(memory, Link::new(7), &contents, now) }
}

fn bytes_of(heap: &Heap, value: usize) -> usize {
    heap.rounded(size_of::<ItemNode<Link>>() + 3 + value)
}

fn append(heap: &Heap, open: &mut Open, value: &[u8]) -> Option<Ptr> {
    let bytes = bytes_of(heap, value.len());
    let node = write(heap.append(open, bytes)?, value);
    settle(heap, node, bytes);
    Some(node)
}

fn settle(heap: &Heap, node: Ptr, bytes: usize) {
    // SAFETY: the tests write an item before they settle it, once (1).
    unsafe { heap.settle(node, bytes) };
}

fn count_dead(heap: &Heap, domain: &Domain, node: Ptr, bytes: usize) {
    // SAFETY: the tests have no table, and do not use the item any more (1).
    unsafe { heap.count_dead(domain, node, bytes) };
}

fn request(bytes: usize, spare: u64) -> Request {
    Request {
        bytes,
        generation: 3,
        spare,
    }
}

fn open(heap: &Heap, domain: &Domain, kind: ItemSizeClass, spare: u64) -> Option<Open> {
    heap.open(domain, kind, request(0, spare), || true)
}

fn open_small(heap: &Heap, domain: &Domain) -> Open {
    open(heap, domain, ItemSizeClass::Small, 0).expect("room")
}

#[test]
fn items_of_a_sealed_segment_are_walked_in_order() {
    let (heap, domain) = heap();
    let mut open = open_small(&heap, &domain);
    let values: Vec<Vec<u8>> = (0..50).map(|len| vec![len; usize::from(len)]).collect();
    let nodes: Vec<Ptr> = values
        .iter()
        .map(|value| append(&heap, &mut open, value).unwrap())
        .collect();
    assert_eq!(heap.generation(heap.segment_of(nodes[9])), 3);
    heap.seal(&domain, open, NEWEST);
    let claim = heap.claim(|queues, _| queues.oldest(Queue::Main));
    let claim = claim.unwrap();
    let (mut at, mut seen) = (0, Vec::new());
    // SAFETY: the claim is one of this heap (1). The offset is 0 first, and then what this function
    // returned for the claim (2).
    while let Some((node, next)) = unsafe { heap.item_at(&claim, at) } {
        // SAFETY: written above, and not freed.
        seen.push(unsafe { Item::from_raw(node) }.value().to_vec());
        at = next;
    }
    assert_eq!(seen, values);
    heap.unclaim(&domain, claim);
}

/// Otherwise a cache that may not evict refuses stores for bytes that nothing uses.
#[test]
fn the_unused_bytes_of_a_segment_sealed_early_are_not_live() {
    let (heap, domain) = heap();
    let bytes = bytes_of(&heap, 10);
    let mut open = open_small(&heap, &domain);
    let node = append(&heap, &mut open, &[1; 10]).unwrap();
    heap.seal(&domain, open, NEWEST);
    assert_eq!(heap.held_bytes(), heap.segment_bytes());
    assert_eq!(heap.live_bytes(), bytes as u64);
    count_dead(&heap, &domain, node, bytes);
    heap.collect(&domain);
    assert_eq!((heap.held_bytes(), heap.live_bytes()), (0, 0));
    assert_eq!(heap.dead.load(Ordering::Relaxed), 0);
}

#[test]
fn a_segment_comes_back_a_grace_period_after_its_last_item_died() {
    let (heap, domain) = heap();
    let mut open = open_small(&heap, &domain);
    let bytes = bytes_of(&heap, 10);
    let nodes = [0; 2].map(|_| append(&heap, &mut open, &[1; 10]).unwrap());
    count_dead(&heap, &domain, nodes[0], bytes);
    heap.seal(&domain, open, NEWEST);
    assert_eq!(heap.waiting_bytes(), 0);
    let guard = domain.pin();
    count_dead(&heap, &domain, nodes[1], bytes);
    assert_eq!(heap.waiting_bytes(), heap.segment_bytes());
    heap.collect(&domain);
    assert_eq!(
        heap.held_bytes(),
        heap.segment_bytes(),
        "a reader may be in it"
    );
    drop(guard);
    heap.collect(&domain);
    assert_eq!((heap.held_bytes(), heap.waiting_bytes()), (0, 0));
}

#[test]
fn what_dies_before_the_seal_counts() {
    let (heap, domain) = heap();
    let mut open = open_small(&heap, &domain);
    let node = append(&heap, &mut open, &[1; 10]).unwrap();
    count_dead(&heap, &domain, node, bytes_of(&heap, 10));
    heap.seal(&domain, open, NEWEST);
    assert_eq!(heap.waiting_bytes(), heap.segment_bytes());
}

#[test]
fn a_claimed_segment_is_retired_by_the_claimant() {
    let (heap, domain) = heap();
    let mut open = open_small(&heap, &domain);
    let node = append(&heap, &mut open, &[1; 10]).unwrap();
    heap.seal(&domain, open, NEWEST);
    let claim = heap.claim_where(&mut 1, &mut 8, |_| true).unwrap();
    assert!(heap.claim_where(&mut 1, &mut 8, |_| true).is_none());
    count_dead(&heap, &domain, node, bytes_of(&heap, 10));
    assert_eq!(heap.waiting_bytes(), 0);
    heap.unclaim(&domain, claim);
    assert_eq!(heap.waiting_bytes(), heap.segment_bytes());
}

#[test]
fn no_more_is_given_out_than_is_allowed() {
    let (heap, domain) = heap();
    let spare = 4 * heap.segment_bytes();
    let opened = std::iter::from_fn(|| open(&heap, &domain, ItemSizeClass::Small, spare));
    let opened: Vec<Open> = opened.collect();
    assert_eq!(heap.held_bytes() + spare, MEMORY);
    let large = heap.segment_bytes() as usize * 2 - 9;
    let newest = || true;
    let refused = heap.open_large(&domain, request(large, spare), NEWEST, newest);
    assert!(refused.is_none());
    let room = heap.open_large(&domain, request(large, 0), NEWEST, newest);
    let room = room.expect("the spare memory");
    assert_eq!(heap.held_bytes() + spare, MEMORY + 2 * heap.segment_bytes());
    let node = write(room, &[7; 10]);
    settle(&heap, node, large);
    count_dead(&heap, &domain, node, large);
    opened
        .into_iter()
        .for_each(|open| heap.seal(&domain, open, NEWEST));
    heap.collect(&domain);
    assert_eq!((heap.held_bytes(), heap.waiting_bytes()), (0, 0));
    assert_eq!(heap.headroom(), MEMORY as i64);
}

#[test]
fn nothing_is_opened_for_a_generation_that_has_ended() {
    let (heap, domain) = heap();
    let ended = || false;
    assert!(
        heap.open(&domain, ItemSizeClass::Small, request(9, 0), ended)
            .is_none()
    );
    let large = request(heap.segment_bytes() as usize, 0);
    assert!(heap.open_large(&domain, large, NEWEST, ended).is_none());
    assert_eq!(heap.held_bytes(), 0);
}

#[test]
fn a_medium_segment_holds_the_pages_in_use() {
    for page in [4 << 10, 16 << 10, 64 << 10] {
        let heap = Heap::with_pages(MEMORY, false, true, page).expect("addresses");
        let domain = Builder::default().build("test");
        let mut medium = open(&heap, &domain, ItemSizeClass::Medium, 0).expect("room");
        let mut count = 0;
        let value = (heap.segment_bytes() as usize * 2).div_ceil(5);
        assert_eq!(heap.size_class(value + 50), ItemSizeClass::Medium);
        while append(&heap, &mut medium, &vec![1; value]).is_some() {
            count += 1;
        }
        assert_eq!((count, heap.held_bytes()), (2, heap.segment_bytes()));
        let used = bytes_of(&heap, value) * count;
        heap.seal(&domain, medium, NEWEST);
        assert_eq!(heap.held_bytes(), used.next_multiple_of(page) as u64);
    }
}

/// Discarding pages never changes a neighbour, with pages of any size.
#[test]
fn discarding_pages_changes_no_live_item() {
    for page in [4 << 10, 16 << 10, 64 << 10] {
        let heap = Heap::with_pages(MEMORY, false, false, page).expect("addresses");
        let domain = Builder::default().build("test");
        let mut kept: Vec<(Ptr, Vec<u8>)> = Vec::new();
        for round in 0..200u32 {
            let kind = [ItemSizeClass::Small, ItemSizeClass::Medium][round as usize % 2];
            let Some(mut opened) = open(&heap, &domain, kind, 0) else {
                break;
            };
            let len = (heap.segment_bytes() as usize / 3).min(1000 + 977 * round as usize % 9000);
            let value = vec![round as u8 | 1; len];
            let node = append(&heap, &mut opened, &value).expect("room");
            heap.seal(&domain, opened, NEWEST);
            if round % 3 == 0 {
                kept.push((node, value));
            } else {
                count_dead(&heap, &domain, node, bytes_of(&heap, len));
            }
            heap.collect(&domain);
            heap.allow(MEMORY / (1 + u64::from(round % 3)));
            heap.allow(MEMORY);
            for (node, value) in &kept {
                // SAFETY: written above, and not counted as dead.
                assert_eq!(unsafe { Item::from_raw(*node) }.value(), value);
            }
        }
        assert!(kept.len() > 3);
    }
}

#[test]
fn an_unsettled_segment_is_not_claimed() {
    let (heap, domain) = heap();
    let mut open = open_small(&heap, &domain);
    append(&heap, &mut open, &[1; 10]).unwrap();
    let room = heap.append(&mut open, bytes_of(&heap, 20)).unwrap();
    heap.seal(&domain, open, NEWEST);
    assert!(heap.claim_where(&mut 1, &mut 8, |_| true).is_none());
    assert!(heap.claim_random(17).is_none());
    settle(&heap, write(room, &[2; 20]), bytes_of(&heap, 20));
    assert!(heap.claim_where(&mut 1, &mut 8, |_| true).is_some());
}

#[test]
fn free_segments_are_given_back_when_less_is_allowed() {
    let (heap, domain) = heap();
    for kind in [ItemSizeClass::Small, ItemSizeClass::Medium] {
        let all =
            || -> Vec<Open> { std::iter::from_fn(|| open(&heap, &domain, kind, 0)).collect() };
        let opened = all();
        let count = opened.len();
        assert!(count as u64 * heap.segment_bytes() == MEMORY);
        for mut open in opened {
            let node = append(&heap, &mut open, &[9; 100]).unwrap();
            heap.seal(&domain, open, NEWEST);
            count_dead(&heap, &domain, node, bytes_of(&heap, 100));
        }
        heap.collect(&domain);
        heap.allow(MEMORY / 2);
        assert!(heap.resident() <= MEMORY / 2);
        heap.allow(MEMORY);
        let again = all();
        assert_eq!(again.len(), count, "those given back can be had again");
        again
            .into_iter()
            .for_each(|open| heap.seal(&domain, open, NEWEST));
    }
}

#[test]
fn what_was_appended_last_can_be_taken_back() {
    let (heap, domain) = heap();
    let mut open = open_small(&heap, &domain);
    let bytes = bytes_of(&heap, 8);
    let first = append(&heap, &mut open, &[1; 8]).unwrap();
    let second = append(&heap, &mut open, &[2; 8]).unwrap();
    // SAFETY: the tests have no table, and do not use the items any more (1).
    unsafe {
        assert!(!heap.take_back(&mut open, first, bytes));
        assert!(heap.take_back(&mut open, second, bytes));
    }
    assert_eq!(append(&heap, &mut open, &[3; 8]), Some(second));
    heap.seal(&domain, open, NEWEST);
}

#[test]
fn ids_lead_back_to_items() {
    let (heap, domain) = heap();
    let mut open = open_small(&heap, &domain);
    let node = append(&heap, &mut open, &[1; 10]).unwrap();
    let id = heap.id(node);
    // SAFETY: the node ID of a live item.
    assert_eq!(unsafe { heap.arena().link(id) }.cast(), node);
    heap.seal(&domain, open, NEWEST);
}

/// Both ends of the addresses are used: the first small items lie at the bottom, and the first
/// large one at the top. (Sanitizers leave fewer addresses.)
#[test]
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
fn the_largest_heap_uses_all_its_addresses() {
    for memory in [65 << 30, 128 << 30, MAX_MEMORY / 2, MAX_MEMORY] {
        if corewise_testkit::random::is_short() {
            return;
        }
        let heap = Heap::new(memory, true, true).expect("addresses");
        let domain = Builder::default().build("test");
        assert_eq!(heap.most_allowed() >= memory, heap.is_reservation);
        let value = vec![7; 2 * heap.segment_bytes() as usize];
        let bytes = bytes_of(&heap, value.len());
        let large = heap.open_large(&domain, request(bytes, 0), NEWEST, || true);
        let large = write(large.expect("room"), &value);
        settle(&heap, large, bytes);
        let mut open = open_small(&heap, &domain);
        let small = append(&heap, &mut open, b"small").expect("room");
        let mut medium = self::open(&heap, &domain, ItemSizeClass::Medium, 0).expect("room");
        let medium = append(&heap, &mut medium, &value[..40_000]).expect("room");
        let mut ids = [small, medium, large].map(|node| {
            let id = heap.id(node);
            // SAFETY: the ID of an item of this heap.
            let link = unsafe { heap.arena().link(id) };
            assert_eq!(link.cast(), node);
            // SAFETY: written above, and not freed.
            let item = unsafe { Item::<Link>::from_raw(node) };
            assert_eq!(item.key(), b"key");
            u64::from(id.0.get()) << heap.arena.granule_log2
        });
        let reserved = heap.reserved as u64;
        assert!(ids[0] < 2 * heap.segment_bytes(), "{ids:?}");
        assert!(ids[2] >= reserved - 4 * heap.segment_bytes(), "{ids:?}");
        assert!(reserved >= 3 * memory);
        ids.sort_unstable();
        count_dead(&heap, &domain, large, bytes);
        assert!(heap.waiting_bytes() >= bytes as u64);
    }
}
