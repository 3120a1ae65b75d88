//! Boards: what is sold under a name.

use crate::targets::{Family, TARGETS, Target};

/// A board, by its public specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Board {
    /// Marketing name without the maker's: `RX 5700 XT`.
    pub name: &'static str,
    /// PCI device ids; the vendor is AMD, 0x1002.
    pub devices: &'static [u16],
    /// PCI revisions that libdrm's `amdgpu.ids` lists for it.
    pub revisions: &'static [u8],
    /// Compute units.
    pub compute_units: u32,
    /// Clocks of the compute units.
    pub clocks: Clocks,
    /// Its memory.
    pub memory: Memory,
    /// Where the figures come from.
    pub source: &'static str,
}

/// Clocks in MHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// The least under load, where the maker tells it.
    pub base: Option<u32>,
    /// Usual in games, where the maker tells it.
    pub game: Option<u32>,
    /// The highest.
    pub boost: u32,
}

/// A board's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Its technology.
    pub kind: MemoryKind,
    /// MiB. Where the processor's memory is shared: what the maker sells it with at most.
    pub mib: u32,
    /// Bits of the bus.
    pub bus_bits: u32,
    /// Mbit/s of each pin.
    pub pin_mbps: u32,
}

/// A technology of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the trade's names
pub enum MemoryKind {
    Gddr5,
    Gddr6,
    Hbm2,
    Lpddr5,
}

impl Memory {
    /// Its clock in MHz as amdgpu counts it, by the bits that a pin moves in one; none for a processor's memory.
    #[must_use]
    pub fn clock_mhz(&self) -> Option<u32> {
        match self.kind {
            MemoryKind::Gddr5 => Some(self.pin_mbps / 4),
            MemoryKind::Gddr6 => Some(self.pin_mbps / 16),
            MemoryKind::Hbm2 => Some(self.pin_mbps / 2),
            MemoryKind::Lpddr5 => None,
        }
    }

    /// Bandwidth in GB/s (10^9).
    #[must_use]
    pub fn bandwidth_gbs(&self) -> f64 {
        f64::from(self.bus_bits) / 8.0 * f64::from(self.pin_mbps) / 1000.0
    }
}

impl Board {
    /// The name as an option's value: `rx5700xt`.
    #[must_use]
    pub fn id(&self) -> String {
        self.name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    }

    /// What drivers call it: `AMD Radeon RX 5500 XT`, whatever the size and speed of its memory.
    #[must_use]
    pub fn full_name(&self) -> String {
        match self.name.starts_with("BC-") {
            true => format!("AMD {}", self.line()),
            false => format!("AMD Radeon {}", self.line()),
        }
    }

    /// The name without the size or speed of memory by which two boards of one name are told apart here.
    fn line(&self) -> &'static str {
        let told = self.name.strip_suffix(" GB").or_else(|| self.name.strip_suffix(" Gbps"));
        told.and_then(|rest| rest.rsplit_once(' ')).map_or(self.name, |(line, _)| line)
    }

    /// The target whose file lists it.
    ///
    /// # Panics
    /// Never: a board is only ever taken from a target's list.
    #[must_use]
    pub fn target(&self) -> &'static Target {
        let lists = |target: &&&Target| target.boards.contains(self);
        TARGETS.iter().find(lists).expect("a board of a target's list")
    }
}

/// Every board, by target.
pub fn all() -> impl Iterator<Item = &'static Board> {
    TARGETS.iter().flat_map(|target| target.boards)
}

/// The boards of RDNA1 that are no part of a processor.
pub fn rdna1() -> impl Iterator<Item = &'static Board> {
    let targets = TARGETS.iter().filter(|target| target.family == Family::Gfx10_1 && !target.integrated);
    targets.flat_map(|target| target.boards)
}

/// The board with that [`Board::id`]; hyphens do not matter.
#[must_use]
pub fn by_id(id: &str) -> Option<&'static Board> {
    let id = id.replace('-', "");
    all().find(|board| board.id() == id)
}

/// Why a name means no board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameError {
    /// None has it; these are all names.
    Unknown(Vec<&'static str>),
    /// Several have it in theirs.
    Ambiguous(Vec<&'static str>),
}

/// A name without the maker's words and without what Mesa puts behind it, in small letters, letters and digits only:
/// `rx5700xt` for `AMD Radeon RX 5700 XT (RADV NAVI10)`.
fn plain(name: &str) -> String {
    let end = name.find(" (RADV").or_else(|| name.find(" (AMD")).unwrap_or(name.len());
    let words = name[..end].replace("(TM)", " ").to_lowercase();
    let words = words.split_whitespace().filter(|word| !["amd", "radeon", "graphics"].contains(word));
    words.flat_map(|word| word.chars().filter(char::is_ascii_alphanumeric)).collect()
}

/// The board that a person means: the one of exactly that name, else the only one whose name holds it.
///
/// Capitals, blanks and `AMD Radeon` do not matter: `rx5700` is the RX 5700, and not the RX 5700 XT.
///
/// # Errors
/// No board has that name, or several have it in theirs.
pub fn named(name: &str) -> Result<&'static Board, NameError> {
    let wanted = plain(name);
    if let Some(board) = all().find(|board| board.id() == wanted) {
        return Ok(board);
    }
    let holding: Vec<&Board> = all().filter(|b| !wanted.is_empty() && b.id().contains(&wanted)).collect();
    match holding.as_slice() {
        [board] => Ok(board),
        [] => Err(NameError::Unknown(all().map(|board| board.name).collect())),
        several => Err(NameError::Ambiguous(several.iter().map(|board| board.name).collect())),
    }
}

/// What a driver tells of a card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen<'a> {
    /// PCI device id.
    pub device: u16,
    /// PCI revision.
    pub revision: Option<u8>,
    /// Its name in the driver's words.
    pub name: &'a str,
    /// Compute units.
    pub compute_units: Option<u32>,
    /// Bytes of its memory.
    pub memory_bytes: Option<u64>,
    /// The memory's clock, as [`Memory::clock_mhz`] counts it.
    pub memory_mhz: Option<u32>,
}

/// The board of a card that a driver shows.
///
/// One PCI id may belong to several boards: those with its revision, then those whose name the driver says are looked at;
/// of these the one with the nearest memory size and then memory clock is taken, and of equals the first. None where the
/// id is unknown, or where the driver counts other compute units than each board of that id has.
#[must_use]
pub fn find(seen: &Seen<'_>) -> Option<&'static Board> {
    let mut left: Vec<&Board> = all().filter(|board| board.devices.contains(&seen.device)).collect();
    let mut keep = |fits: &dyn Fn(&Board) -> bool| {
        if left.iter().any(|board| fits(board)) {
            left.retain(|board| fits(board));
        }
    };
    let name = plain(seen.name);
    keep(&|board| seen.revision.is_some_and(|revision| board.revisions.contains(&revision)));
    keep(&|board| plain(board.line()) == name);
    left.retain(|board| seen.compute_units.is_none_or(|units| board.compute_units == units));
    let off = |board: &&&Board| {
        let bytes = u64::from(board.memory.mib) << 20;
        let clock = board.memory.clock_mhz().zip(seen.memory_mhz);
        (
            seen.memory_bytes.map_or(0, |seen| bytes.abs_diff(seen) >> 30),
            clock.map_or(0, |(board, seen)| board.abs_diff(seen)),
        )
    };
    left.iter().min_by_key(off).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_whole_and_have_different_names() {
        let mut ids = BTreeSet::new();
        for board in all() {
            assert!(ids.insert(board.id()), "{} is there twice", board.name);
            let Clocks { base, game, boost } = board.clocks;
            let rising = [base, game, Some(boost)].into_iter().flatten().is_sorted();
            assert!(rising && (800..=3600).contains(&boost), "{}: {:?}", board.name, board.clocks);
            let Memory { kind, mib, bus_bits, pin_mbps } = board.memory;
            assert_eq!(kind == MemoryKind::Hbm2, bus_bits >= 1024, "{}", board.name);
            assert!(
                mib % 1024 == 0 && bus_bits % 32 == 0 && (1000..=21000).contains(&pin_mbps),
                "{}",
                board.name
            );
            assert!(!board.source.is_empty() && board.compute_units % 2 == 0, "{}", board.name);
            assert!(board.devices.iter().all(|id| board.target().pci.contains(id)), "{}", board.name);
        }
        assert!(ids.len() > 50);
    }

    #[test]
    fn a_name_means_one_board_or_says_which_it_may_be() {
        for (name, means) in [
            ("RX 5700", "RX 5700"),
            ("rx5700xt", "RX 5700 XT"),
            ("AMD Radeon RX 5600 XT", "RX 5600 XT"),
            ("5600 xt 14", "RX 5600 XT 14 Gbps"),
            ("AMD Radeon RX 5700 XT (RADV NAVI10)", "RX 5700 XT"),
            ("bc-250", "BC-250"),
        ] {
            assert_eq!(named(name).map(|board| board.name), Ok(means), "{name}");
        }
        let Err(NameError::Ambiguous(names)) = named("w5") else { panic!("several hold it") };
        assert!(names.contains(&"Pro W5500") && names.contains(&"Pro W5700"), "{names:?}");
        for unknown in ["", "  ", "RX 9999", "GTX 1080", "AMD Radeon"] {
            assert!(matches!(named(unknown), Err(NameError::Unknown(_))), "{unknown}");
        }
    }

    #[test]
    fn cards_that_share_an_id_are_told_apart() {
        let gib = |n: u64| Some(n << 30);
        let card = |device, name, compute_units, memory_bytes| {
            let seen =
                Seen { device, name, compute_units: Some(compute_units), memory_bytes, ..Seen::default() };
            find(&seen).map(|board| board.name)
        };
        assert_eq!(card(0x731f, "AMD Radeon RX 5600 XT (RADV NAVI10)", 36, gib(6)), Some("RX 5600 XT"));
        assert_eq!(card(0x731f, "AMD Radeon RX 5700 (RADV NAVI10)", 36, gib(8)), Some("RX 5700"));
        assert_eq!(card(0x731f, "AMD Radeon RX 5700 XT (RADV NAVI10)", 40, gib(8)), Some("RX 5700 XT"));
        assert_eq!(card(0x7340, "AMD Radeon RX 5500 XT (RADV NAVI14)", 22, gib(4)), Some("RX 5500 XT 4 GB"));
        assert_eq!(card(0x7340, "AMD Radeon RX 5500 XT (RADV NAVI14)", 22, gib(8)), Some("RX 5500 XT"));
        // What HIP tells besides.
        let faster = |memory_mhz| {
            let name = "AMD Radeon RX 5600 XT";
            let seen = Seen { device: 0x731f, revision: Some(0xca), name, memory_mhz, ..Seen::default() };
            find(&seen).map(|board| board.name)
        };
        assert_eq!(
            [None, Some(750), Some(875)].map(faster),
            [Some("RX 5600 XT"), Some("RX 5600 XT"), Some("RX 5600 XT 14 Gbps")]
        );
        // Mesa without libdrm's list of names.
        assert_eq!(card(0x731f, "AMD Radeon Graphics (RADV NAVI10)", 40, gib(8)), Some("RX 5700 XT"));
        assert_eq!(card(0x731f, "AMD Radeon Graphics (RADV NAVI10)", 10, gib(8)), None, "no board has 10");
        assert_eq!(card(0x1234, "AMD Radeon RX 5700 XT", 40, gib(8)), None);
    }

    #[test]
    fn figures_are_those_of_the_public_specifications() {
        let figures = |name| {
            let board = named(name).unwrap();
            (board.compute_units, board.memory.bandwidth_gbs() as u32, board.memory.mib >> 10)
        };
        assert_eq!(figures("RX 5600 XT"), (36, 288, 6));
        assert_eq!(figures("RX 5700 XT"), (40, 448, 8));
        assert_eq!(figures("RX 5500 XT"), (22, 224, 8));
        assert_eq!(figures("RX 5500 XT 4 GB"), (22, 224, 4));
    }
}
