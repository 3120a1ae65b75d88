//! Temperatures and clocks, read aside: a file of a hung card may not answer.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wave32_doctor::system::System;
use wave32_report::schema::{CardReadings, Sensors};
use wave32_report::sensors;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1500);
/// How long the last look may take.
const LAST: Duration = Duration::from_secs(2);

/// Looks at the cards until it is finished.
pub struct Sampler {
    phase: Sender<String>,
    cards: Arc<Mutex<Vec<CardReadings>>>,
    ended: mpsc::Receiver<()>,
}

impl Sampler {
    /// Starts, with a first look; none where the system gives no thread.
    pub fn start(root: &Path) -> Option<Self> {
        let (phase, phases) = mpsc::channel::<String>();
        let (tell_end, ended) = mpsc::channel();
        let cards = Arc::new(Mutex::new(Vec::new()));
        let (shared, root) = (Arc::clone(&cards), root.to_path_buf());
        let work = move || {
            let Ok(system) = System::at(&root) else { return };
            let found = sensors::cards(&system);
            let addresses: Vec<String> = found.iter().map(|card| card.address.clone()).collect();
            if let Ok(mut cards) = shared.lock() {
                *cards = found;
            }
            let (begin, mut during) = (Instant::now(), "before".to_string());
            loop {
                for (index, address) in addresses.iter().enumerate() {
                    // Not under the lock: this may never come back.
                    let reading = sensors::read(&system, address, begin.elapsed().as_secs_f64(), &during);
                    if let Ok(mut cards) = shared.lock() {
                        cards[index].readings.push(reading);
                    }
                }
                if during == "after" {
                    let _ = tell_end.send(());
                    return;
                }
                match phases.recv_timeout(PAUSE) {
                    Ok(phase) => during = phase,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        std::thread::Builder::new().spawn(work).ok()?;
        Some(Self { phase, cards, ended })
    }

    /// What runs from now on.
    pub fn phase(&self, name: &str) {
        let _ = self.phase.send(name.to_string());
    }

    /// A last look, and everything that was read.
    pub fn finish(self) -> Sensors {
        self.phase("after");
        let ended = self.ended.recv_timeout(LAST).is_ok();
        let cards = self.cards.lock().map(|cards| cards.clone()).unwrap_or_default();
        let mut found = sensors::report(cards);
        if !ended && !found.cards.is_empty() {
            found.note = Some("the last reading did not come: the card's files did not answer".into());
        }
        found
    }
}
