//! The cards, by the figures that the model needs.

use crate::constants as c;
use wave32_cards::Board;

/// A card whose time is modelled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelCard {
    /// Marketing name, as in `wave32_cards`.
    pub name: &'static str,
    /// Its gfx target.
    pub target: &'static str,
    /// Workgroup processors: pairs of CUs.
    pub wgps: u64,
    /// Hz: the boost clock.
    pub clock: f64,
    /// Hz: the game clock; where the maker tells none, the base clock, or else the boost clock.
    pub game_clock: f64,
    /// Bytes a second at the bus's rate.
    pub bandwidth: f64,
    /// L2 slices: one for each 16 bits of the bus.
    pub l2_slices: u64,
    /// Bytes of L2: 256 KiB a slice (RDNA whitepaper: 4 MiB at 16).
    pub l2_bytes: u64,
    /// Shader arrays, each with an L1.
    pub arrays: u64,
    /// Seconds from one dependent launch's end to the next one's start.
    pub launch: f64,
}

impl ModelCard {
    /// The cards that are modelled where nobody names one, as `wave32_solve::usual_boards` has them.
    #[cfg(feature = "plans")]
    pub fn usual() -> Vec<ModelCard> {
        wave32_solve::usual_boards().into_iter().filter_map(ModelCard::of).collect()
    }

    /// A board of RDNA1, whose instructions the model knows, with memory that is its own.
    pub fn of(board: &'static Board) -> Option<ModelCard> {
        let target = board.target();
        let chip = target.chip.filter(|_| wave32_cards::rdna1().any(|card| card == board))?;
        // A slice for each 16 bits of a GDDR6 bus; those of a narrower board than the chip's widest are off.
        let l2_slices = u64::from((board.memory.bus_bits / 16).min(chip.l2_kib / 256));
        Some(ModelCard {
            name: board.name,
            target: target.name,
            wgps: u64::from(board.compute_units / 2),
            clock: f64::from(board.clocks.boost) * 1e6,
            game_clock: f64::from(board.clocks.game.or(board.clocks.base).unwrap_or(board.clocks.boost))
                * 1e6,
            bandwidth: board.memory.bandwidth_gbs() * 1e9,
            l2_slices,
            l2_bytes: l2_slices * (256 << 10),
            arrays: u64::from(chip.shader_engines * chip.arrays_per_engine),
            launch: c::LAUNCH_US as f64 * 1e-6,
        })
    }
}

#[cfg(all(test, feature = "plans"))]
mod tests {
    use super::ModelCard;
    use wave32_solve::{DeviceCaps, usual_boards};

    #[test]
    fn a_launch_costs_what_the_solvers_count() {
        for (board, card) in usual_boards().into_iter().zip(ModelCard::usual()) {
            assert_eq!(DeviceCaps::of(board).launch_us * 1e-6, card.launch);
        }
    }

    #[test]
    fn figures_of_the_usual_cards() {
        let figures: Vec<_> =
            ModelCard::usual().iter().map(|c| (c.name, c.wgps, c.l2_bytes >> 20, c.arrays)).collect();
        assert_eq!(figures, [("RX 5600 XT", 18, 3, 4), ("RX 5700 XT", 20, 4, 4), ("RX 5500 XT", 11, 2, 2)]);
    }

    #[test]
    fn every_card_of_rdna1_can_be_modelled() {
        assert!(wave32_cards::rdna1().all(|board| ModelCard::of(board).is_some()));
        assert!(wave32_cards::by_id("rx6600").is_some_and(|board| ModelCard::of(board).is_none()));
    }
}
