//! A line: the bits of up to 512 neighbouring frames, one cache line. A set bit is a free frame, which has no owner.
//!
//! The CPU that clears a bit owns the frame, and the owner that sets it gives the frame up. Nothing else decides ownership, so every method
//! here is safe to call at any time, on any CPU.

use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU64, Ordering, fence, fence_in_models, is_broken};
use crate::units::Order;

/// The largest order of a line: the bits of 512 frames are one cache line.
pub(crate) const LARGEST: Order = Order(9);
/// The largest order of a run within one word. Words of models have two frames, so that small lines have several words.
const WORD: Order = if cfg!(loom) { Order(1) } else { Order(6) };
/// The words of the largest line.
const MOST_WORDS: usize = words(LARGEST);

/// The first frames of aligned runs of an order, as bits of a word.
const HEADS: [u64; 7] = [
    u64::MAX,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x1_0000_0001,
    1,
];

/// How full a line is, and what its largest free run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// Free frames.
    pub(super) free: u32,
    /// The order of the largest aligned run of free frames; that of the line if all are free.
    pub(super) run: Order,
}

/// What freed frames have made of a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grown {
    /// Whether all of them were in use before.
    pub(super) is_new: bool,
    /// The order of the largest run that they are part of.
    pub(super) run: Order,
}

impl Grown {
    /// The line has no such word.
    const NOTHING: Self = Self { is_new: false, run: Order::ZERO };

    /// The same of two words.
    #[inline(always)]
    pub(super) fn and(self, other: Self) -> Self {
        Self { is_new: self.is_new & other.is_new, run: self.run.max(other.run) }
    }
}

/// What came of a claim of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claimed {
    /// The block begins at this frame of the line.
    At(u32),
    /// No aligned run of that order was free.
    Nothing,
    /// Part of the block was taken and put back, because another CPU took the rest meanwhile. The line may have to be listed again.
    PutBack,
}

/// The bits of a line.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    words: &'a [AtomicU64],
    order: Order,
}

/// The frames of one word of a line of that order.
#[inline(always)]
pub(super) const fn word_order(line: Order) -> Order {
    if line.0 < WORD.0 { line } else { WORD }
}

/// The words of a line of that order.
#[inline(always)]
pub(super) const fn words(line: Order) -> usize {
    1 << (line.0 - word_order(line).0)
}

/// The bits of a run of that order at the start of a word.
#[inline(always)]
const fn ones(order: Order) -> u64 {
    u64::MAX >> (u64::BITS - (1 << order.0))
}

/// The heads of the free runs of the next order, of those of an order below that of a word.
#[inline(always)]
fn pairs(heads: u64, order: u8) -> u64 {
    heads & heads >> (1 << order) & HEADS[order as usize + 1]
}

/// The heads of the free runs of an order, of at most that of a word.
#[inline(always)]
fn runs(mut bits: u64, order: Order) -> u64 {
    // Words of fresh memory are full, and those that were used up are empty.
    if bits != u64::MAX && bits != 0 {
        for step in 0..order.0 {
            bits &= bits >> (1 << step);
        }
    }
    bits & HEADS[order.0 as usize]
}

/// The order of the largest free run of a word that has a free frame.
#[inline(always)]
fn largest_run(bits: u64) -> Order {
    // No branch on what is free: no processor can foresee it.
    let (mut heads, mut run) = (bits, 0);
    for order in 0..WORD.0 {
        heads = pairs(heads, order);
        run += u8::from(heads != 0);
    }
    Order(run)
}

/// The order of the largest free run of a word around a block of it that is free.
#[inline(always)]
fn run_around(bits: u64, head: u32) -> Order {
    let mut run = 0;
    for order in 1..=WORD.0 {
        let around = ones(Order(order)) << (head & !((1 << order) - 1));
        run += u8::from(bits & around == around);
    }
    Order(run)
}

impl<'a> Line<'a> {
    /// The line of that order whose words these are.
    #[inline(always)]
    pub(super) fn new(words: &'a [AtomicU64], order: Order) -> Self {
        Self { words, order }
    }

    #[inline(always)]
    fn touch<P: Platform>(&self, platform: &P, access: Access) {
        platform.touch_line(SharedLine::of(LineKind::Mechanism, &self.words[0]), access);
    }

    /// The word of all frames.
    #[inline(always)]
    fn full(&self) -> u64 {
        ones(word_order(self.order))
    }

    /// Takes all free frames of a word, as bits.
    #[inline(always)]
    pub(super) fn take_word<P: Platform>(&self, platform: &P, at: usize) -> u64 {
        let Some(word) = self.words.get(at) else { return 0 };
        if word.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.touch(platform, Access::ReadModifyWrite);
        // An exchange; models have none for words of any value. Acquire: pairs with the Release in `set`. The frame's next owner sees what
        // the last one wrote to it.
        word.fetch_and(0, Ordering::Acquire) & self.full()
    }

    /// Takes an aligned block, the one that leaves the largest runs behind in its word. The order is below that of the line.
    // Inlined, as a line that is passed through memory is stored and loaded in different sizes, which takes as long as the exchange.
    #[inline(always)]
    pub(super) fn claim<P: Platform>(&self, platform: &P, order: Order) -> Claimed {
        self.touch(platform, Access::ReadModifyWrite);
        match order.0 {
            _ if order > word_order(self.order) => self.claim_words(platform, order),
            // Orders without lists: with a constant, the compiler unrolls the loops over smaller orders.
            4 => self.claim_run(Order(4)),
            5 => self.claim_run(Order(5)),
            6 => self.claim_run(Order(6)),
            _ => self.claim_run(order),
        }
    }

    /// Takes an aligned block of at most a word.
    #[inline(always)]
    fn claim_run(&self, order: Order) -> Claimed {
        let (word_order, full) = (word_order(self.order), self.full());
        let mut first = 0;
        for word in self.words {
            let mut bits = word.load(Ordering::Relaxed);
            loop {
                let free = runs(bits & full, order);
                if free == 0 {
                    break;
                }
                let head = smallest(free, order).trailing_zeros();
                let left = bits & !(ones(order) << head);
                // Acquire: pairs with the Release in `set`, as in `take_word`.
                match word.compare_exchange_weak(bits, left, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Claimed::At(first + head),
                    Err(found) => bits = found,
                }
            }
            first += 1 << word_order.0;
        }
        Claimed::Nothing
    }

    /// Takes aligned blocks of an order of at most that of a word, up to `most` from each word with one exchange, until `take`, which gets
    /// the first frame of each, has had that many.
    #[inline(always)]
    pub(super) fn claim_many<P: Platform>(&self, platform: &P, order: Order, most: usize, mut take: impl FnMut(u32)) {
        self.touch(platform, Access::ReadModifyWrite);
        let (word_order, mut left) = (word_order(self.order), most as u32);
        for (at, word) in self.words.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            loop {
                let (mut heads, mut chosen, mut count) = (runs(bits & self.full(), order), 0, 0);
                while heads != 0 && count < left {
                    chosen |= heads & heads.wrapping_neg();
                    heads &= heads - 1;
                    count += 1;
                }
                if count == 0 {
                    break;
                }
                // The runs of heads do not touch.
                let blocks = ones(order).wrapping_mul(chosen);
                // Acquire: pairs with the Release in `set`, as in `take_word`.
                match word.compare_exchange_weak(bits, bits & !blocks, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        left -= count;
                        while chosen != 0 {
                            take(((at as u32) << word_order.0) + chosen.trailing_zeros());
                            chosen &= chosen - 1;
                        }
                        break;
                    }
                    Err(found) => bits = found,
                }
            }
        }
    }

    /// Takes an aligned block of several whole words.
    fn claim_words<P: Platform>(&self, platform: &P, order: Order) -> Claimed {
        let count = 1usize << (order.0 - word_order(self.order).0);
        for (at, block) in self.words.chunks_exact(count).enumerate() {
            if block.iter().all(|word| word.load(Ordering::Relaxed) == self.full()) {
                match self.take_words(platform, block) {
                    Claimed::At(_) => return Claimed::At((at as u32) << order.0),
                    Claimed::Nothing => {}
                    // The caller lists the line first, as it may be on no list.
                    Claimed::PutBack => return Claimed::PutBack,
                }
            }
        }
        Claimed::Nothing
    }

    /// Takes words that are full: all of them, or none.
    #[inline(always)]
    fn take_words<P: Platform>(&self, platform: &P, block: &[AtomicU64]) -> Claimed {
        let other = block.iter().position(|word| {
            // Acquire: pairs with the Release in `set`, as in `take_word`.
            word.compare_exchange(self.full(), 0, Ordering::Acquire, Ordering::Relaxed).is_err()
        });
        match other {
            None => Claimed::At(0),
            Some(0) => Claimed::Nothing,
            Some(taken) => {
                block[..taken].iter().for_each(|word| _ = self.set(platform, word, self.full()));
                Claimed::PutBack
            }
        }
    }

    /// Takes the whole line, if all of its frames are free.
    pub(super) fn claim_whole<P: Platform>(&self, platform: &P) -> Claimed {
        self.touch(platform, Access::ReadModifyWrite);
        if is_broken!(WholeNotChecked) {
            self.words.iter().for_each(|word| _ = word.fetch_and(0, Ordering::Relaxed));
            return Claimed::At(0);
        }
        self.take_words(platform, self.words)
    }

    /// Sets bits of a word. Returns the word as it was.
    #[inline(always)]
    fn set<P: Platform>(&self, platform: &P, word: &AtomicU64, bits: u64) -> u64 {
        self.touch(platform, Access::ReadModifyWrite);
        // Release: pairs with the Acquire in `take_word`, `claim` and `take_words`. Sequentially consistent: pairs with `move_to`; the load of
        // the state that follows is in `Listing::settle`.
        word.fetch_or(bits, Ordering::SeqCst)
    }

    /// Frees the first of some blocks that lie in one word, the first of them at `offset` in this line. Returns their number.
    #[inline(always)]
    pub(super) fn put_first<P: Platform>(
        &self,
        platform: &P,
        offset: u32,
        blocks: &[u32],
        order: Order,
    ) -> (Grown, usize) {
        let word_order = word_order(self.order);
        let bit_of = |place: u32| place & ((1 << word_order.0) - 1);
        let word_of = |place: &u32| place >> word_order.0;
        let in_first = |place: &u32| word_of(place) == word_of(&blocks[0]);
        if order > word_order || !blocks.get(1).is_some_and(in_first) {
            // What was freed at random has no neighbours.
            return (self.put_block(platform, offset, order), 1);
        }
        let (mut bits, mut count) = (0, 0);
        for place in blocks.iter().copied().take_while(in_first) {
            bits |= ones(order) << bit_of(place);
            count += 1;
        }
        let at = (offset >> word_order.0) as usize;
        let Some(word) = self.words.get(at) else { return (Grown::NOTHING, count) };
        let was = self.set(platform, word, bits);
        let run = self.run_around_word(at, largest_run((was | bits) & self.full()));
        (Grown { is_new: was & bits == 0, run }, count)
    }

    /// Frees a block of the line that begins at a frame of it.
    #[inline(always)]
    pub(super) fn put_block<P: Platform>(&self, platform: &P, offset: u32, order: Order) -> Grown {
        let word_order = word_order(self.order);
        let at = (offset >> word_order.0) as usize;
        if order > word_order {
            let words = self.words.get(at..at + (1 << (order.0 - word_order.0)));
            let is_new = words.is_some_and(|words| self.put_words(platform, words));
            return Grown { is_new, run: self.run_around_words(at, order) };
        }
        let Some(word) = self.words.get(at) else { return Grown::NOTHING };
        let head = offset & ((1 << word_order.0) - 1);
        let bits = ones(order) << head;
        let was = self.set(platform, word, bits);
        Grown { is_new: was & bits == 0, run: self.run_around_word(at, run_around((was | bits) & self.full(), head)) }
    }

    /// Frees all frames of some words; whether none of them was free already.
    #[inline(always)]
    fn put_words<P: Platform>(&self, platform: &P, words: &[AtomicU64]) -> bool {
        // Loom does not know that no store comes between the load and the store of an exchange, here one of a thief that finds nothing.
        if cfg!(loom) || words.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
            return words.iter().fold(true, |is_new, word| is_new & (self.set(platform, word, self.full()) == 0));
        }
        self.touch(platform, Access::ReadModifyWrite);
        for word in words {
            // No other CPU changes a word all of whose frames are the caller's. Release: pairs with the Acquire in `take_word`, `claim` and
            // `take_words`.
            word.store(self.full(), Ordering::Release);
        }
        // Sequentially consistent: pairs with `move_to`; the load of the state that follows is in `Listing::settle`.
        fence(Ordering::SeqCst);
        true
    }

    /// Frees the whole line; whether none of its frames was free already.
    #[inline]
    pub(super) fn put_whole<P: Platform>(&self, platform: &P) -> bool {
        self.put_words(platform, self.words)
    }

    /// The order of the largest run around a word that has a run of the order `run`.
    #[inline(always)]
    fn run_around_word(&self, at: usize, run: Order) -> Order {
        if run == word_order(self.order) { self.run_around_words(at, run) } else { run }
    }

    /// The order of the largest run around words that are free, a run of the order `run`. Of CPUs that free neighbours at the same time, the last
    /// one sees all.
    fn run_around_words(&self, at: usize, mut run: Order) -> Order {
        fence_in_models!(FreedUnfenced);
        let word_order = word_order(self.order);
        while run < self.order {
            let count = 2 << (run.0 - word_order.0);
            let first = at & !(count - 1);
            // Sequentially consistent: pairs with `set`.
            let is_full = |word: &AtomicU64| word.load(Ordering::SeqCst) & self.full() == self.full();
            if !self.words.get(first..first + count).is_some_and(|words| words.iter().all(is_full)) {
                break;
            }
            run = Order(run.0 + 1);
        }
        run
    }

    /// How full the line is now; `None` if no frame is free.
    #[inline]
    pub(super) fn shape<P: Platform>(&self, platform: &P) -> Option<Shape> {
        self.touch(platform, Access::Read);
        // Sequentially consistent: pairs with `set`.
        let mut heads = [0; MOST_WORDS];
        heads.iter_mut().zip(self.words).for_each(|(bits, word)| *bits = word.load(Ordering::SeqCst) & self.full());
        if heads.iter().fold(0, |any, bits| any | bits) == 0 {
            return None;
        }
        let free = count_ones(heads);
        let full = self.full();
        let full_words = heads.iter().rev().fold(0, |words, bits| words << 1 | u64::from(*bits == full));
        if full_words == 0 {
            // All words together, from each order to the next one.
            let mut run = Order::ZERO;
            while run < word_order(self.order) {
                heads.iter_mut().for_each(|bits| *bits = pairs(*bits, run.0));
                if heads.iter().fold(0, |any, bits| any | bits) == 0 {
                    break;
                }
                run = Order(run.0 + 1);
            }
            return Some(Shape { free, run });
        }
        let mut run = word_order(self.order);
        let mut heads = full_words;
        while run < self.order {
            let order = run.0 - word_order(self.order).0;
            heads = pairs(heads, order);
            if heads == 0 {
                break;
            }
            run = Order(run.0 + 1);
        }
        Some(Shape { free, run })
    }

    /// The aligned free blocks of an order that are part of no larger one, possibly stale.
    pub(super) fn blocks_racy(&self, order: Order) -> u64 {
        let word_order = word_order(self.order);
        let runs_of = |order: Order| -> u64 {
            if order <= word_order {
                return self.words_racy().map(|bits| u64::from(runs(bits & self.full(), order).count_ones())).sum();
            }
            let blocks = self.words.chunks_exact(1 << (order.0 - word_order.0));
            blocks.filter(|block| block.iter().all(|word| word.load(Ordering::Relaxed) == self.full())).count() as u64
        };
        let larger = if order < self.order { runs_of(Order(order.0 + 1)) } else { 0 };
        runs_of(order).saturating_sub(2 * larger)
    }

    /// The free frames, possibly stale.
    pub(super) fn free_racy(&self) -> u32 {
        let mut words = [0; MOST_WORDS];
        words.iter_mut().zip(self.words).for_each(|(bits, word)| *bits = word.load(Ordering::Relaxed));
        count_ones(words)
    }

    /// The words as they are.
    pub(super) fn words_racy(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.words.iter().map(|word| word.load(Ordering::Relaxed))
    }
}

/// The bits that are set. Many machines of the oldest kind that is supported have no instruction for that: bytes are added up last.
#[inline(always)]
fn count_ones(words: [u64; MOST_WORDS]) -> u32 {
    let bytes = words.into_iter().fold(0, |sum, bits| {
        let twos = bits - (bits >> 1 & 0x5555_5555_5555_5555);
        let fours = (twos & 0x3333_3333_3333_3333) + (twos >> 2 & 0x3333_3333_3333_3333);
        // At most 8 of each of 8 words fit a byte.
        sum + ((fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f)
    });
    // Their sum, up to 512, does not.
    let pairs = (bytes & 0x00ff_00ff_00ff_00ff) + (bytes >> 8 & 0x00ff_00ff_00ff_00ff);
    (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as u32
}

/// Of the free runs of an order those that are part of no larger one, if there are any.
#[inline(always)]
fn smallest(free: u64, order: Order) -> u64 {
    if order >= WORD {
        return free;
    }
    let larger = pairs(free, order.0);
    let alone = free & !(larger | larger << (1 << order.0));
    if alone != 0 { alone } else { free }
}
