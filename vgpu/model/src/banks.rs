//! Clocks that an LDS instruction keeps its half's banks, from the addresses it really has.

use crate::constants::LDS_BANKS;

const BANKS: usize = LDS_BANKS as usize;

/// Clocks of one instruction: lanes go in phases, as many at once as could fill the banks (32 of a dword, 16 of two, 8
/// of three or four); a phase takes as many clocks as its fullest bank has different dwords. Lanes that want the same
/// dword share it. `bytes` is what a lane moves in all, over several accesses where the instruction has two addresses.
pub(crate) fn clocks(touched: &[(u32, u64, u32)]) -> u64 {
    if touched.is_empty() {
        return 1;
    }
    let mut of_lane = [0u32; 64];
    for &(lane, _, bytes) in touched {
        of_lane[lane as usize % 64] += bytes;
    }
    let widest = of_lane.into_iter().max().unwrap_or(4);
    let lanes_at_once = match widest {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    };
    let mut total = 0;
    let mut phase = Phase::default();
    for first in (0..64).step_by(lanes_at_once) {
        phase.clear();
        for &(lane, address, bytes) in touched {
            if (first..first + lanes_at_once).contains(&(lane as usize)) {
                for dword in address / 4..(address + u64::from(bytes)).div_ceil(4) {
                    phase.want(dword);
                }
            }
        }
        total += phase.fullest();
    }
    total.max(1)
}

/// Different dwords wanted of each bank. A bank holds 32 at most: one for each lane.
struct Phase {
    dwords: [[u64; 32]; BANKS],
    count: [u8; BANKS],
}

impl Default for Phase {
    fn default() -> Self {
        Self { dwords: [[0; 32]; BANKS], count: [0; BANKS] }
    }
}

impl Phase {
    fn clear(&mut self) {
        self.count = [0; BANKS];
    }

    fn want(&mut self, dword: u64) {
        let bank = (dword % LDS_BANKS) as usize;
        let count = usize::from(self.count[bank]);
        if count < 32 && !self.dwords[bank][..count].contains(&dword) {
            self.dwords[bank][count] = dword;
            self.count[bank] += 1;
        }
    }

    fn fullest(&self) -> u64 {
        self.count.iter().copied().max().map_or(0, u64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::clocks;

    fn lanes(stride: u64, bytes: u32) -> Vec<(u32, u64, u32)> {
        (0..32).map(|lane| (lane, u64::from(lane) * stride, bytes)).collect()
    }

    #[test]
    fn conflicts_are_counted_by_hand() {
        assert_eq!(clocks(&lanes(4, 4)), 1); // a dword each, all banks
        assert_eq!(clocks(&lanes(8, 4)), 2); // even banks only
        assert_eq!(clocks(&lanes(16, 4)), 4);
        assert_eq!(clocks(&lanes(128, 4)), 32); // one bank
        assert_eq!(clocks(&lanes(132, 4)), 1); // padded rows
        assert_eq!(clocks(&lanes(0, 4)), 1); // one dword for all
        assert_eq!(clocks(&lanes(8, 8)), 2); // 256 bytes at 128 a clock
        assert_eq!(clocks(&lanes(16, 16)), 4);
        assert_eq!(clocks(&lanes(128, 16)), 32); // 4 phases of 8 lanes on 4 banks
        assert_eq!(clocks(&lanes(0, 16)), 4); // a broadcast goes out in phases all the same
        assert_eq!(clocks(&[]), 1);
    }

    #[test]
    fn two_addresses_count_as_one_wide_access() {
        let two: Vec<_> =
            (0..32).flat_map(|l| [(l, u64::from(l) * 4, 4), (l, 4096 + u64::from(l) * 4, 4)]).collect();
        assert_eq!(clocks(&two), 2 * 2); // 16 lanes at once, both dwords of a lane in one bank
        let apart: Vec<_> =
            (0..32).flat_map(|l| [(l, u64::from(l) * 4, 4), (l, 4096 + 64 + u64::from(l) * 4, 4)]).collect();
        assert_eq!(clocks(&apart), 2);
    }
}
