//! The cards that can be had.

use wave32_cards::Board;
use wave32_cards::targets::{Chip, Target};

/// What one gets without asking.
pub const USUAL: &str = "rx5600xt";

/// A card: a board of RDNA1 with its chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualCard {
    /// The board.
    pub board: &'static Board,
    /// Its target.
    pub target: &'static Target,
    /// What its chip has.
    pub chip: Chip,
}

impl VirtualCard {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        wave32_cards::rdna1().filter_map(|board| {
            let target = board.target();
            Some(Self { board, target, chip: target.chip? })
        })
    }

    /// By its board's id.
    pub fn by_id(id: &str) -> Option<Self> {
        let board = wave32_cards::by_id(id)?;
        Self::all().find(|card| card.board == board)
    }

    /// The memory's clock in MHz.
    pub fn memory_mhz(&self) -> u32 {
        self.board.memory.clock_mhz().unwrap_or(0)
    }

    /// The first PCI device id that it is sold with.
    pub fn device(&self) -> u16 {
        self.board.devices.first().copied().unwrap_or(0)
    }

    /// The first PCI revision that it is sold with; 0 where none is known.
    pub fn revision(&self) -> u8 {
        self.board.revisions.first().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_card_and_its_kin() {
        let card = VirtualCard::by_id(USUAL).unwrap();
        assert_eq!((card.target.kfd(), card.chip.name, card.revision()), (100_100, "Navi 10", 0xca));
        assert_eq!(VirtualCard::by_id("rx5500xt-4gb").unwrap().target.kfd(), 100_102);
        assert!(VirtualCard::by_id("bc-250").is_none() && VirtualCard::by_id("rx6600").is_none());
        let targets: Vec<_> = VirtualCard::all().map(|card| card.target.name).collect();
        assert!(targets.len() > 15 && targets.iter().all(|name| name.starts_with("gfx101")), "{targets:?}");
    }
}
