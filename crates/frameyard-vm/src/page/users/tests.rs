use std::sync::Mutex;

use frameyard::page::{CountedPage, FrameState};
use frameyard::{ByteSize, PageCount, Pfn};

use super::*;
use crate::address::VirtAddr;
use crate::area::{HugeAdvice, Sharing};
use crate::map::MapRequest;
use crate::page::PageKind;
use crate::pin::{Dirty, PageRun, PinRequest, RefHandling};
use crate::root::{LruPolicy, VmConfig};
use crate::store::{BackingStore, PatternStore, StoreError};
use crate::test_yard::{TestPlatform, TestYard, run_on};
use crate::vm::Vm;

const HUGE: u64 = 2 << 20;

/// For each user, the bytes of a page structure with all bits that pages of that user have had, in memory order. The identity
/// is not seen.
struct Seen([[u8; 64]; PageUser::ALL.len()]);

impl Seen {
    /// Looks at the page structures of all frames.
    fn look(&mut self, yard: &TestYard) {
        let mut huge_until = Pfn(0);
        for pfn in (0..yard.frame_range().count().0).map(|at| yard.frame_range().start + PageCount(at)) {
            // SAFETY: only reads.
            let Some(page) = (unsafe { yard.counted().page(pfn) }) else { continue };
            let user = match (page.tag().state(), PageKind::of_word(page.owner())) {
                (FrameState::Interior, _) if pfn < huge_until => Tail,
                (FrameState::Counted, Some(PageKind::Objects)) => SmallObjects,
                (FrameState::Counted, Some(PageKind::Cache)) => PageCache,
                (FrameState::Counted, Some(PageKind::PageTable)) => PageTable,
                (FrameState::Counted, Some(PageKind::Anonymous)) if page.tag().order().0 == 0 => Anonymous,
                (FrameState::Counted, Some(PageKind::Anonymous)) => {
                    huge_until = pfn + page.tag().order().pages();
                    HugeHead
                }
                _ => continue,
            };
            for (seen, byte) in self.0[user as usize].iter_mut().zip(bytes_of(page)) {
                *seen |= byte;
            }
        }
    }
}

/// What the accessors of a page return, in the places of the core's words.
fn bytes_of(page: CountedPage<'_, TestPlatform>) -> [u8; 64] {
    let mut bytes = [0; 64];
    let (tag, counts) = (page.tag(), page.counts());
    let [zone_low, zone_high] = tag.zone().0.to_ne_bytes();
    let mut put = |word: usize, value: &[u8]| {
        bytes[PAGE_WORDS[word].offset..][..value.len()].copy_from_slice(value);
    };
    put(TAG, &[tag.state() as u8, tag.order().0, tag.migrate_type() as u8, 0, zone_low, zone_high]);
    put(NEXT, &page.next().bits().to_ne_bytes());
    put(PREV, &page.prev().bits().to_ne_bytes());
    put(COUNTS, &(u64::from(counts.references) | u64::from(counts.mappings) << 32).to_ne_bytes());
    put(OWNER, &page.owner().to_ne_bytes());
    put(INDEX, &page.index().to_ne_bytes());
    put(SPARE[0], &page.spare(0).to_ne_bytes());
    put(SPARE[1], &page.spare(1).to_ne_bytes());
    bytes
}

/// A store that looks at the pages while one is locked.
struct LookingStore<'y> {
    yard: &'y TestYard,
    seen: &'y Mutex<Seen>,
}

impl BackingStore for LookingStore<'_> {
    fn fill(&self, key: u64, page: u64, offset: usize, bytes: &mut [u8]) -> Result<(), StoreError> {
        self.seen.lock().unwrap().look(self.yard);
        PatternStore.fill(key, page, offset, bytes)
    }

    fn write_back(&self, _key: u64, _page: u64, _bytes: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
#[cfg(target_endian = "little")]
fn pages_of_each_user_have_bits_in_all_fields_of_the_table_and_nowhere_else() {
    let (yard, seen) = (TestYard::new(), Mutex::new(Seen([[0; 64]; PageUser::ALL.len()])));
    let store = LookingStore { yard: &yard, seen: &seen };
    let config = VmConfig { lru: LruPolicy::Sharded, ..VmConfig::default() };
    let vm = Vm::create(&yard, &config).unwrap().with_store(&store);
    run_on(1);
    let file = vm.create_file(1, ByteSize(64 * 4096)).unwrap();
    let mut bytes = [0; 4096];
    for page in 0..64 {
        file.read(page * 4096, &mut bytes).unwrap();
    }
    let space = vm.create_space().unwrap();
    let huge = space.map(MapRequest::anonymous(ByteSize(4 * HUGE)).advised(HugeAdvice::Huge)).unwrap();
    let small = space.map(MapRequest::anonymous(ByteSize(HUGE)).advised(HugeAdvice::Never)).unwrap();
    for range in [huge, small] {
        for addr in (range.start.0..range.end.0).step_by(4096) {
            space.write(VirtAddr(addr), &[1]).unwrap();
        }
    }
    // Several frames of areas, each with free slots.
    let areas = (0..256).map(|area| {
        let advice = if area % 2 == 0 { HugeAdvice::Huge } else { HugeAdvice::Never };
        space.map(MapRequest::anonymous(ByteSize(4096)).advised(advice)).unwrap()
    });
    for range in areas.collect::<Vec<_>>().into_iter().step_by(3) {
        space.unmap(range).unwrap();
    }
    let request = MapRequest::file(file.id(), 0, ByteSize(64 * 4096), Sharing::Shared);
    let mapped = space.map(request).unwrap();
    let mut frames = [Pfn(0); 64];
    space.take_pages(mapped.start, PinRequest::PIN, &mut frames).unwrap();
    vm.lru_drain_all();
    let mut runs = [PageRun::default(); 8];
    let taken = space.take_runs(huge, PinRequest::PIN, &mut runs).unwrap();
    seen.lock().unwrap().look(&yard);
    vm.unpin_pages(&frames, RefHandling::default(), Dirty::Keep).unwrap();
    vm.unpin_runs(&runs[..taken.runs], RefHandling::default(), Dirty::Keep).unwrap();
    for user in PageUser::ALL {
        for field in PAGE_FIELDS.iter().filter(|field| field.word != PAGE_WORDS[IDENTITY].name) {
            let has_bits =
                seen.lock().unwrap().0[user as usize][field.offset..][..field.size].iter().any(|byte| *byte != 0);
            let holds = field.holds(user);
            assert_eq!(has_bits, !holds.starts_with(ZERO), "{user}, {} at {}: {holds}", field.word, field.offset);
        }
    }
    drop((space, file));
    vm.finish();
}
