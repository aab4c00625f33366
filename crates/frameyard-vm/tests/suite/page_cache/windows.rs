//! The readahead windows of files.

use frameyard::{ByteSize, PageCount};
use frameyard_vm::VmCounter;

use crate::page_cache::{PAGE, with_vm};

#[test]
fn sequential_reads_double_the_window() {
    with_vm(|vm| {
        let file = vm.create_file(1, ByteSize(1000 * PAGE)).unwrap();
        let mut there = Vec::new();
        for page in 0..200 {
            file.read(page * PAGE, &mut [0; PAGE as usize]).unwrap();
            let pages = file.pages().0;
            if there.last() != Some(&pages) {
                there.push(pages);
            }
        }
        let windows: Vec<_> = there.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(there[0], 4);
        assert_eq!(windows, [8, 16, 32, 32, 32, 32, 32, 32, 32], "the windows of the readahead");
        assert_eq!(vm.counted(VmCounter::PgcacheMiss), 1);
        assert_eq!(vm.counted(VmCounter::PgcacheHit), 199);
        assert_eq!(vm.counted(VmCounter::PgcacheReadahead), file.pages().0 - 1);
        assert_eq!(vm.counted(VmCounter::PgcacheAdd), file.pages().0);
    });
}

#[test]
fn random_reads_fetch_one_page_each() {
    with_vm(|vm| {
        let file = vm.create_file(1, ByteSize(1000 * PAGE)).unwrap();
        for (n, page) in [500, 3, 770, 41, 999, 600].into_iter().enumerate() {
            file.read(page * PAGE + 9, &mut [0; 1]).unwrap();
            assert_eq!(file.pages(), PageCount(n as u64 + 1));
        }
        assert_eq!(vm.counted(VmCounter::PgcacheReadahead), 0);
    });
}

#[test]
fn large_read_fetches_its_range_up_to_the_end() {
    with_vm(|vm| {
        let file = vm.create_file(1, ByteSize(70 * PAGE - 1)).unwrap();
        let mut bytes = vec![0; 50 * PAGE as usize];
        assert_eq!(file.read(PAGE * 15, &mut bytes), Ok(bytes.len()));
        assert!(file.pages().0 >= 50);
        assert_eq!(file.read(PAGE * 65, &mut bytes), Ok(5 * PAGE as usize - 1));
        assert!(file.pages().0 <= 55, "readahead outside the file or before the first read");
        assert_eq!(file.read(PAGE * 70, &mut bytes), Ok(0));
    });
}

#[test]
fn two_readers_have_independent_windows() {
    with_vm(|vm| {
        let first = vm.create_file(1, ByteSize(4000 * PAGE)).unwrap();
        let second = vm.file(first.id()).unwrap();
        first.read(1999 * PAGE, &mut [0; 1]).unwrap();
        for page in 0..300 {
            second.read(page * PAGE, &mut [0; PAGE as usize]).unwrap();
            first.read((2000 + page) * PAGE, &mut [0; PAGE as usize]).unwrap();
        }
        assert_eq!(vm.counted(VmCounter::PgcacheMiss), 3, "one miss for each first page, and one for the page before");
    });
}

#[test]
fn second_read_activates_a_page_unless_sequential() {
    with_vm(|vm| {
        let active = || vm.lru_statistics(frameyard::NodeId(0)).on(frameyard_vm::LruList::ActiveFile);
        let file = vm.create_file(1, ByteSize(10 * PAGE)).unwrap();
        for byte in 0..100 {
            file.read(byte, &mut [0; 1]).unwrap();
            vm.lru_drain_all();
        }
        assert_eq!(active(), PageCount(0));
        file.read(5 * PAGE, &mut [0; 1]).unwrap();
        file.read(0, &mut [0; 1]).unwrap();
        vm.lru_drain_all();
        assert_eq!(active(), PageCount(1));
    });
}

#[test]
fn large_sequential_reads_wait_only_for_the_first_page() {
    for (asked, first) in [(32, 0), (40, 0), (64, 7), (200, 100)] {
        with_vm(|vm| {
            let file = vm.create_file(1, ByteSize(2000 * PAGE)).unwrap();
            // A reader that starts in the middle is recognised as sequential by the previous page.
            let before = u64::from(first > 0);
            if before > 0 {
                file.read((first - 1) * PAGE, &mut [0; 1]).unwrap();
            }
            let mut bytes = vec![0; (asked * PAGE) as usize];
            for turn in 0..4 {
                assert_eq!(file.read((first + turn * asked) * PAGE, &mut bytes), Ok(bytes.len()));
                assert!(
                    file.pages().0 > before + (turn + 1) * asked,
                    "the readahead is not ahead, {asked} pages at once"
                );
            }
            assert_eq!(vm.counted(VmCounter::PgcacheMiss), before + 1, "{asked} pages at once");
        });
    }
}
