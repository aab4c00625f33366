//! A line: the bits of up to 512 neighbouring frames, in one cache line. A set bit means that the frame is free and has
//! no owner.
//!
//! The CPU that clears a bit becomes the owner of the frame, and an owner that sets it gives the frame up. Nothing else
//! decides ownership, so every method here may be called at any time, on any CPU.

use crate::platform::{Access, LineKind, Platform, Probe, SharedLine};
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

/// What freed frames have made of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grown {
    /// Whether all of them were in use before.
    pub(super) is_new: bool,
    /// The order of the largest run that they are part of.
    pub(super) run: Order,
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
pub(super) const fn ones(order: Order) -> u64 {
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

impl<'a> Line<'a> {
    /// The line of that order whose words these are.
    #[inline(always)]
    pub(super) fn new(words: &'a [AtomicU64], order: Order) -> Self {
        Self { words, order }
    }

    #[inline(always)]
    fn touch<P: Platform>(&self, platform: &P, access: Access) {
        platform.probe().touch_line(SharedLine::of(LineKind::Mechanism, &self.words[0]), access);
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
        // the state that follows is in `Listing::allows`.
        word.fetch_or(bits, Ordering::SeqCst)
    }

    /// Frees the first of some blocks, by their places: those that lie in the line of the first one, which is this one. Returns their number.
    #[inline(always)]
    pub(super) fn put_some<P: Platform>(&self, platform: &P, blocks: &[u32], order: Order) -> (Grown, usize) {
        let word_order = word_order(self.order);
        let line_of = |place: u32| place >> self.order.0;
        let (mut count, mut is_new, mut run, mut filled) = (0, true, Order::ZERO, 0);
        while let Some(first) = blocks.get(count).copied().filter(|place| line_of(*place) == line_of(blocks[0])) {
            let at = ((first & ((1 << self.order.0) - 1)) >> word_order.0) as usize;
            if order >= word_order {
                let words = 1 << (order.0 - word_order.0);
                let Some(block) = self.words.get(at..at + words) else { break };
                is_new = block.iter().fold(is_new, |is_new, word| is_new & self.fill(platform, word));
                filled |= ((1 << words) - 1) << at;
                count += 1;
                continue;
            }
            let mut bits = 0;
            for place in blocks[count..].iter().copied().take_while(|place| (place ^ first) >> word_order.0 == 0) {
                bits |= ones(order) << (place & ((1 << word_order.0) - 1));
                count += 1;
            }
            let Some(word) = self.words.get(at) else { break };
            if bits == self.full() {
                is_new &= self.fill(platform, word);
                filled |= 1 << at;
                continue;
            }
            let was = self.set(platform, word, bits);
            is_new &= was & bits == 0;
            let now = (was | bits) & self.full();
            if now == self.full() { filled |= 1 << at } else { run = run.max(largest_run(now)) }
        }
        if filled != 0 {
            self.end_fills(platform);
            run = self.run_around(filled);
        }
        (Grown { is_new, run }, count)
    }

    /// Frees all frames of a word; whether none was free already. The caller calls [`end_fills`](Self::end_fills) before it looks at the state of
    /// the line.
    #[inline(always)]
    fn fill<P: Platform>(&self, platform: &P, word: &AtomicU64) -> bool {
        // Loom does not know that no store comes between the load and the store of an exchange, here one of a thief that finds nothing.
        if cfg!(loom) || word.load(Ordering::Relaxed) != 0 {
            return self.set(platform, word, self.full()) == 0;
        }
        // No other CPU changes a word all of whose frames are the caller's. Release: pairs with the Acquire in `take_word`, `claim` and
        // `take_words`.
        word.store(self.full(), Ordering::Release);
        true
    }

    #[inline(always)]
    fn end_fills<P: Platform>(&self, platform: &P) {
        self.touch(platform, Access::ReadModifyWrite);
        // Sequentially consistent: pairs with `move_to`; the load of the state that follows is in `Listing::allows`. Models store nothing.
        if !cfg!(loom) {
            fence(Ordering::SeqCst);
        }
    }

    /// Frees the whole line; whether none of its frames was free already.
    #[inline]
    pub(super) fn put_whole<P: Platform>(&self, platform: &P) -> bool {
        let is_new = self.words.iter().fold(true, |is_new, word| is_new & self.fill(platform, word));
        self.end_fills(platform);
        is_new
    }

    /// The order of the largest run around words that the caller has filled, which are bits of `filled`. Of CPUs that fill neighbours at the
    /// same time, the last one sees all.
    #[inline]
    fn run_around(&self, mut filled: u64) -> Order {
        fence_in_models!(FreedUnfenced);
        // Sequentially consistent: pairs with `set`.
        let mut heads = self.full_words(self.words.iter().map(|word| word.load(Ordering::SeqCst)));
        let mut run = word_order(self.order);
        while run < self.order {
            let step = run.0 - word_order(self.order).0;
            (heads, filled) = (pairs(heads, step), (filled | filled >> (1 << step)) & HEADS[step as usize + 1]);
            if heads & filled == 0 {
                break;
            }
            run = Order(run.0 + 1);
        }
        run
    }

    /// Which of the line's words are full, as bits.
    #[inline(always)]
    fn full_words(&self, words: impl DoubleEndedIterator<Item = u64>) -> u64 {
        words.rev().fold(0, |full, bits| full << 1 | u64::from(bits & self.full() == self.full()))
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
        let full_words = self.full_words(heads.into_iter());
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
        // Whole lines are frequent, and counting bits takes a while.
        if self.words_racy().all(|bits| bits == self.full()) {
            return 1 << self.order.0;
        }
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
