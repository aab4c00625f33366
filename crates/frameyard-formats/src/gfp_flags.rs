//! The flags of a kernel's request, by name.

use core::fmt;

use frameyard::Gfp;

/// The flags of a request, by the names that kernels of the 6.x series give them.
///
/// The bits are those of `___GFP_*_BIT` in Linux 6.12 (`include/linux/gfp_types.h`), whatever kernel made the
/// recording, because flags are read by name. A name that is not known sets [`OTHER`](Self::OTHER).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GfpFlags(pub u32);

/// The flags in the order of their bits.
const NAMES: [&str; 24] = [
    "__GFP_DMA",
    "__GFP_HIGHMEM",
    "__GFP_DMA32",
    "__GFP_MOVABLE",
    "__GFP_RECLAIMABLE",
    "__GFP_HIGH",
    "__GFP_IO",
    "__GFP_FS",
    "__GFP_ZERO",
    "__GFP_UNUSED",
    "__GFP_DIRECT_RECLAIM",
    "__GFP_KSWAPD_RECLAIM",
    "__GFP_WRITE",
    "__GFP_NOWARN",
    "__GFP_RETRY_MAYFAIL",
    "__GFP_NOFAIL",
    "__GFP_NORETRY",
    "__GFP_MEMALLOC",
    "__GFP_COMP",
    "__GFP_NOMEMALLOC",
    "__GFP_HARDWALL",
    "__GFP_THISNODE",
    "__GFP_ACCOUNT",
    "__GFP_ZEROTAGS",
];

const fn bit(at: u32) -> u32 {
    1 << at
}

const DMA: u32 = bit(0);
const HIGHMEM: u32 = bit(1);
const DMA32: u32 = bit(2);
const MOVABLE: u32 = bit(3);
const RECLAIMABLE: u32 = bit(4);
const HIGH: u32 = bit(5);
const DIRECT_RECLAIM: u32 = bit(10);
const KSWAPD_RECLAIM: u32 = bit(11);
const NORETRY: u32 = bit(16);
const THISNODE: u32 = bit(21);
const RECLAIM: u32 = DIRECT_RECLAIM | KSWAPD_RECLAIM;
const KERNEL: u32 = RECLAIM | bit(6) | bit(7);
const USER: u32 = KERNEL | bit(20);
const HIGHUSER_MOVABLE: u32 = USER | HIGHMEM | MOVABLE;
const TRANSHUGE_LIGHT: u32 = (HIGHUSER_MOVABLE | bit(18) | bit(19) | bit(13)) & !RECLAIM;

/// Names of several flags. Printing takes the first that fits, as the kernel does (`__def_gfpflag_names`).
const GROUPS: [(&str, u32); 13] = [
    ("GFP_TRANSHUGE", TRANSHUGE_LIGHT | DIRECT_RECLAIM),
    ("GFP_TRANSHUGE_LIGHT", TRANSHUGE_LIGHT),
    ("GFP_HIGHUSER_MOVABLE", HIGHUSER_MOVABLE),
    ("GFP_HIGHUSER", USER | HIGHMEM),
    ("GFP_USER", USER),
    ("GFP_KERNEL_ACCOUNT", KERNEL | bit(22)),
    ("GFP_KERNEL", KERNEL),
    ("GFP_NOFS", RECLAIM | bit(6)),
    ("GFP_ATOMIC", HIGH | KSWAPD_RECLAIM),
    ("GFP_NOIO", RECLAIM),
    ("GFP_NOWAIT", KSWAPD_RECLAIM),
    ("GFP_DMA", DMA),
    ("GFP_DMA32", DMA32),
];

impl GfpFlags {
    /// Set if there were flags whose names this version does not know.
    pub const OTHER: Self = Self(1 << 31);

    /// Parses names separated by bars. In place of a name there may be a hexadecimal number, such as `0x100`, whose
    /// bits are taken as they are.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(text.split('|').map(bits_of).fold(0, |all, bits| all | bits))
    }

    /// The flags that matter to a yard: those for zones, mobility, and whether the request may wait.
    #[must_use]
    pub fn to_gfp(self) -> Gfp {
        const SAME: [(u32, Gfp); 9] = [
            (DMA, Gfp::DMA),
            (HIGHMEM, Gfp::HIGHMEM),
            (DMA32, Gfp::DMA32),
            (MOVABLE, Gfp::MOVABLE),
            (RECLAIMABLE, Gfp::RECLAIMABLE),
            (HIGH, Gfp::HIGH),
            (DIRECT_RECLAIM, Gfp::DIRECT_RECLAIM),
            (NORETRY, Gfp::NORETRY),
            (THISNODE, Gfp::THISNODE),
        ];
        SAME.iter().filter(|(bit, _)| self.0 & bit != 0).fold(Gfp::NOWAIT, |gfp, (_, same)| gfp | *same)
    }
}

fn bits_of(name: &str) -> u32 {
    let known = NAMES.iter().position(|known| *known == name).map(|at| 1 << at);
    let group = || GROUPS.iter().find(|(group, _)| *group == name).map(|(_, bits)| *bits);
    let number = || u32::from_str_radix(name.strip_prefix("0x")?, 16).ok();
    match name {
        "" | "none" | "0" => 0,
        "__GFP_RECLAIM" => RECLAIM,
        _ => known.or_else(group).or_else(number).unwrap_or(GfpFlags::OTHER.0),
    }
}

impl fmt::Display for GfpFlags {
    /// The names as the kernel prints them, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.pad("none");
        }
        let (mut left, mut bar) = (self.0, "");
        let single = NAMES.iter().enumerate().map(|(at, name)| (*name, 1 << at));
        for (name, bits) in GROUPS.into_iter().chain(single) {
            if left & bits == bits {
                write!(f, "{bar}{name}")?;
                (left, bar) = (left & !bits, "|");
            }
        }
        if left != 0 { write!(f, "{bar}{left:#x}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_kernel_print_as_they_were_read() {
        for text in [
            "GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP",
            "GFP_KERNEL_ACCOUNT|__GFP_ZERO",
            "GFP_NOFS|__GFP_RECLAIMABLE|__GFP_NOWARN",
            "GFP_ATOMIC",
            "__GFP_HIGH",
            "GFP_NOWAIT|__GFP_NORETRY|__GFP_NOMEMALLOC",
            "none",
        ] {
            assert_eq!(GfpFlags::parse(text).to_string(), text);
        }
        assert_eq!(GfpFlags::parse("0x100cca"), GfpFlags(0x0010_0cca));
        assert_eq!(GfpFlags::parse("0x100cca").to_string(), "GFP_HIGHUSER_MOVABLE");
    }

    #[test]
    fn an_unknown_name_is_kept_as_one() {
        let flags = GfpFlags::parse("GFP_KERNEL|__GFP_NEW");
        assert_eq!(flags, GfpFlags(KERNEL | GfpFlags::OTHER.0));
        assert_eq!(GfpFlags::parse(&flags.to_string()), flags);
    }

    #[test]
    fn a_yard_gets_the_flags_that_it_knows() {
        let gfp = GfpFlags::parse("GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP").to_gfp();
        assert_eq!(gfp, Gfp::HIGHUSER_MOVABLE);
        assert_eq!(GfpFlags::parse("GFP_ATOMIC").to_gfp(), Gfp::ATOMIC);
    }
}
