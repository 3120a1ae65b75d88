//! The cards, by the figures that the model needs beyond `wave32_solve::CARDS`.

use wave32_solve::{CARDS, CardModel};

/// A card whose time is modelled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Card {
    /// Marketing name, as in `wave32_solve::CARDS`.
    pub name: &'static str,
    /// Its gfx target.
    pub target: &'static str,
    /// Workgroup processors: pairs of CUs.
    pub wgps: u64,
    /// Hz.
    pub clock: f64,
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

/// Bus bits and shader arrays: public specifications of the boards and of Navi 10 and 14.
const BUSES: [(&str, u64, u64); 3] = [("RX 5600 XT", 192, 4), ("RX 5700 XT", 256, 4), ("RX 5500 XT", 128, 2)];

impl Card {
    /// The modelled cards, in the order of `wave32_solve::CARDS`.
    pub fn all() -> Vec<Card> {
        CARDS.iter().filter_map(Card::of).collect()
    }

    /// A card of the quick model, where its buses are known.
    pub fn of(model: &CardModel) -> Option<Card> {
        let (_, bus, arrays) = BUSES.into_iter().find(|(name, _, _)| *name == model.name)?;
        let caps = model.caps();
        Some(Card {
            name: model.name,
            target: model.target,
            wgps: u64::from(caps.compute_units / 2),
            clock: f64::from(caps.clock_mhz) * 1e6,
            bandwidth: caps.bandwidth_gbs * 1e9,
            l2_slices: bus / 16,
            l2_bytes: bus / 16 * (256 << 10),
            arrays,
            launch: caps.launch_us * 1e-6,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Card;

    #[test]
    fn every_card_of_the_quick_model_is_known() {
        let cards = Card::all();
        assert_eq!(cards.len(), wave32_solve::CARDS.len());
        let figures: Vec<_> = cards.iter().map(|c| (c.wgps, c.l2_bytes >> 20)).collect();
        assert_eq!(figures, [(18, 3), (20, 4), (11, 2)]);
    }
}
