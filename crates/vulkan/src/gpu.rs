//! The logical device, its one queue and its timeline: submit, wait with a deadline, know when it is lost.

use crate::adapter::{Adapter, Family};
use crate::dot::MixedFloatDotProductFeatures;
use crate::error::at;
use crate::instance::Instance;
use crate::submits::{Kernels, Point, Submits};
use ash::{ext, khr, vk};
use std::ffi::{CStr, c_char};
use std::sync::Arc;
use std::time::Duration;
use wave32_device::{Deadline, DeviceError};

/// How long dropping a device waits for work in flight before it leaks the device instead.
const DROP_DEADLINE: Duration = Duration::from_secs(5);

/// A logical device. Dropping it destroys it; whatever was made from it must be gone or leaked with it.
pub(crate) struct Gpu {
    pub(crate) raw: ash::Device,
    pub(crate) adapter: Adapter,
    pub(crate) family: Family,
    queue: vk::Queue,
    pub(crate) submits: Arc<Submits>,
    timeline: vk::Semaphore,
    /// What the next submit waits for besides: other timelines and their values.
    after: Vec<Point>,
    /// The value that the latest submit signals.
    submitted: u64,
    /// The highest value that a wait has seen.
    reached: u64,
    fault: Option<ext::device_fault::Device>,
    /// Submits until the device counts as lost; none unless a fault is injected.
    lost_after: Option<u64>,
    /// Why no call is possible any more.
    given_up: Option<String>,
    /// The process that opened it: no driver survives a fork.
    process: u32,
    // Last, so that it is destroyed after the device.
    pub(crate) instance: Instance,
}

impl Gpu {
    /// Opens `adapter`, which is of `instance`, with every optional feature it has.
    pub(crate) fn new(instance: Instance, adapter: Adapter, robust: bool) -> Result<Self, DeviceError> {
        let family = match &adapter.family {
            Ok(family) => *family,
            Err(why) => {
                let text = format!("{} ({}) cannot be used: {why}", adapter.info.id, adapter.info.name);
                return Err(DeviceError::Unavailable(text));
            }
        };
        let has = adapter.features;
        let mut extensions: Vec<*const c_char> = Vec::new();
        let wanted: [(bool, &CStr); 5] = [
            (has.float16_dot, MixedFloatDotProductFeatures::EXTENSION),
            (has.float16_matrix, khr::cooperative_matrix::NAME),
            (has.device_fault, ext::device_fault::NAME),
            (has.memory_budget, ext::memory_budget::NAME),
            (has.subgroup_control && has.subgroup_extension, ext::subgroup_size_control::NAME),
        ];
        extensions.extend(wanted.iter().filter(|(present, _)| *present).map(|(_, name)| name.as_ptr()));
        let core = vk::PhysicalDeviceFeatures::default()
            .shader_int16(has.int16)
            .shader_int64(has.int64)
            .shader_float64(has.float64)
            .robust_buffer_access(robust && has.robust);
        let mut f11 =
            vk::PhysicalDeviceVulkan11Features::default().storage_buffer16_bit_access(has.storage16);
        let mut f12 = vk::PhysicalDeviceVulkan12Features::default()
            .timeline_semaphore(true)
            .shader_float16(has.float16)
            .vulkan_memory_model(has.float16_matrix)
            .storage_buffer8_bit_access(has.storage8)
            .shader_int8(has.int8);
        let mut control = vk::PhysicalDeviceSubgroupSizeControlFeatures::default()
            .subgroup_size_control(true)
            .compute_full_subgroups(has.full_subgroups);
        let mut fault = vk::PhysicalDeviceFaultFeaturesEXT::default().device_fault(true);
        let (copies, priorities) = (family.copies, [1.0; 3]);
        let of = |family: u32, count: u32| {
            vk::DeviceQueueCreateInfo::default()
                .queue_family_index(family)
                .queue_priorities(&priorities[..count as usize])
        };
        let queues = match copies.index == family.index {
            true => vec![of(family.index, 1 + copies.count)],
            false => vec![of(family.index, 1), of(copies.index, copies.count)],
        };
        let mut info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .enabled_features(&core)
            .push_next(&mut f11)
            .push_next(&mut f12);
        if has.subgroup_control {
            info = info.push_next(&mut control);
        }
        let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
        if has.float16_matrix {
            info = info.push_next(&mut matrix);
        }
        let mut dot =
            MixedFloatDotProductFeatures { float16_with_float32_sum: vk::TRUE, ..Default::default() };
        if has.float16_dot {
            info = info.push_next(&mut dot);
        }
        if has.device_fault {
            info = info.push_next(&mut fault);
        }
        // SAFETY: the physical device is of this instance; every feature and extension enabled is one it
        // listed; `info` and all it points to live until the call returns.
        let raw = unsafe { instance.raw.create_device(adapter.physical, &info, None) }
            .map_err(at("vkCreateDevice"))?;
        // SAFETY: the family was created with one queue.
        let queue = unsafe { raw.get_device_queue(family.index, 0) };
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(0);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: timeline semaphores are enabled.
        let timeline = match unsafe { raw.create_semaphore(&info, None) } {
            Ok(semaphore) => semaphore,
            Err(code) => {
                // SAFETY: nothing was made from the device.
                unsafe { raw.destroy_device(None) };
                return Err(at("vkCreateSemaphore")(code));
            }
        };
        let fault = has.device_fault.then(|| ext::device_fault::Device::new(&instance.raw, &raw));
        let process = std::process::id();
        let submits = Arc::new(Submits::new(raw.clone()));
        Ok(Self {
            raw,
            adapter,
            family,
            queue,
            submits,
            timeline,
            after: Vec::new(),
            submitted: 0,
            reached: 0,
            fault,
            lost_after: None,
            given_up: None,
            process,
            instance,
        })
    }

    /// Refuses calls on a device that was lost, or that another process opened.
    pub(crate) fn guard(&self) -> Result<(), DeviceError> {
        if self.forked() {
            return Err(DeviceError::Misuse(
                "the Vulkan device was opened before a fork; open one in each process, after forking".into(),
            ));
        }
        match &self.given_up {
            None => Ok(()),
            Some(why) => {
                Err(DeviceError::Lost(format!("{why} (the device was given up then; open it anew)")))
            }
        }
    }

    /// After that many more submits the driver is taken to answer "device lost" to everything.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn lose_after(&mut self, submits: u64) {
        self.lost_after = Some(submits);
    }

    fn forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// The error of a failed call; a lost device is remembered, with what the driver says of it.
    pub(crate) fn failed(&mut self, call: &'static str, code: vk::Result) -> DeviceError {
        if code != vk::Result::ERROR_DEVICE_LOST {
            return at(call)(code);
        }
        let mut text = call.to_string();
        if let Some(fault) = self.fault_text() {
            text.push_str(&format!(": {fault}"));
        }
        self.given_up = Some(text.clone());
        DeviceError::Lost(text)
    }

    /// What VK_EXT_device_fault says of a lost device.
    fn fault_text(&self) -> Option<String> {
        let fault = self.fault.as_ref().filter(|_| self.lost_after.is_none())?;
        let query = fault.fp().get_device_fault_info_ext;
        let mut counts = vk::DeviceFaultCountsEXT::default();
        // SAFETY: the device is lost, as the call demands; a null info asks for the counts only.
        unsafe { query(self.raw.handle(), &mut counts, std::ptr::null_mut()) }.result().ok()?;
        let mut addresses =
            vec![vk::DeviceFaultAddressInfoEXT::default(); counts.address_info_count as usize];
        let mut vendor = vec![vk::DeviceFaultVendorInfoEXT::default(); counts.vendor_info_count as usize];
        counts.vendor_binary_size = 0;
        let mut info = vk::DeviceFaultInfoEXT {
            p_address_infos: addresses.as_mut_ptr(),
            p_vendor_infos: vendor.as_mut_ptr(),
            ..Default::default()
        };
        // SAFETY: both arrays have the lengths in `counts`, and no vendor binary is asked for.
        let answer = unsafe { query(self.raw.handle(), &mut counts, &mut info) };
        if !matches!(answer, vk::Result::SUCCESS | vk::Result::INCOMPLETE) {
            return None;
        }
        let mut text = info.description_as_c_str().ok()?.to_string_lossy().into_owned();
        for address in addresses.iter().take(4) {
            text.push_str(&format!(", address {:#x}", address.reported_address));
        }
        Some(text)
    }

    /// Submits one recorded command buffer; the value returned is signalled when it is done.
    pub(crate) fn submit(&mut self, commands: vk::CommandBuffer) -> Result<u64, DeviceError> {
        if self.lost_after == Some(0) {
            return Err(self.failed("vkQueueSubmit", vk::Result::ERROR_DEVICE_LOST));
        }
        let kernels = Kernels {
            queue: self.queue,
            commands,
            done: (self.timeline, self.submitted + 1),
            after: std::mem::take(&mut self.after),
        };
        match self.submits.kernels(kernels) {
            Ok(()) => {
                self.submitted += 1;
                self.lost_after = self.lost_after.map(|left| left - 1);
                Ok(self.submitted)
            }
            Err(code) => Err(self.failed("vkQueueSubmit", code)),
        }
    }

    /// Waits until the timeline reaches `value`. A deadline that passes gives the device up: what is in
    /// flight can neither be stopped nor trusted.
    pub(crate) fn wait(&mut self, value: u64, what: &str, deadline: Deadline) -> Result<(), DeviceError> {
        let lost = self.lost_after == Some(0);
        let answer = if lost {
            Err(vk::Result::ERROR_DEVICE_LOST)
        } else {
            self.wait_raw(value, deadline.left().as_nanos() as u64)
        };
        match answer {
            Ok(()) => {
                self.reached = self.reached.max(value);
                Ok(())
            }
            Err(vk::Result::TIMEOUT) => {
                self.given_up = Some(format!("{what}, which took longer than {:?}", deadline.length()));
                Err(DeviceError::Timeout { what: what.into(), deadline: deadline.length() })
            }
            Err(code) => Err(self.failed("vkWaitSemaphores", code)),
        }
    }

    /// The next submit starts when marks are set.
    pub(crate) fn wait_for(&mut self, timeline: vk::Semaphore, value: u64) {
        match self.after.iter_mut().find(|(known, _)| *known == timeline) {
            Some((_, highest)) => *highest = value.max(*highest),
            None => self.after.push((timeline, value)),
        }
    }

    /// The next submit does not wait for these timelines, which are going.
    pub(crate) fn forget(&mut self, timelines: &[vk::Semaphore]) {
        self.after.retain(|(timeline, _)| !timelines.contains(timeline));
        self.submits.forget(timelines);
    }

    /// The timeline that submits signal.
    pub(crate) fn timeline(&self) -> vk::Semaphore {
        self.timeline
    }

    /// The queues for copies beside the kernels, down and up, and their family.
    pub(crate) fn copy_queues(&self) -> ([vk::Queue; 2], u32) {
        let copies = self.family.copies;
        let queue = |direction: u32| match copies.count {
            0 => self.queue,
            // SAFETY: the family was created with that many queues from the first on.
            count => unsafe {
                self.raw.get_device_queue(copies.index, copies.first + direction.min(count - 1))
            },
        };
        ([queue(0), queue(1)], copies.index)
    }

    /// Device time from one timestamp to a later one; the counter may wrap once in between.
    pub(crate) fn elapsed(&self, from: u64, to: u64) -> Duration {
        ticks_to_time(from, to, self.family.timestamp_bits, self.adapter.limits.timestamp_period_ns)
    }

    /// The timeline value at which everything submitted so far is done.
    pub(crate) fn last_submitted(&self) -> u64 {
        self.submitted
    }

    /// The highest timeline value that a wait has seen.
    pub(crate) fn reached(&self) -> u64 {
        self.reached
    }

    /// True where nothing is in flight, as far as the driver tells.
    pub(crate) fn is_idle(&self) -> bool {
        // SAFETY: the semaphore is a timeline of this device.
        let reached = unsafe { self.raw.get_semaphore_counter_value(self.timeline) };
        reached.is_ok_and(|value| value >= self.submitted)
    }

    fn wait_raw(&self, value: u64, timeout_ns: u64) -> Result<(), vk::Result> {
        let (semaphores, values) = ([self.timeline], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is a timeline of this device, both arrays have one element.
        unsafe { self.raw.wait_semaphores(&info, timeout_ns) }
    }

    /// True once nothing is in flight, so that everything may be destroyed. Waits, but not for ever;
    /// false in a forked child, whose driver state is the parent's.
    pub(crate) fn quiet(&self) -> bool {
        !self.forked()
            && match self.wait_raw(self.submitted, DROP_DEADLINE.as_nanos() as u64) {
                // A lost device runs nothing any more.
                Ok(()) | Err(vk::Result::ERROR_DEVICE_LOST) => true,
                Err(_) => false,
            }
    }

    /// True where the device still answers.
    pub(crate) fn is_alive(&self) -> bool {
        self.given_up.is_none()
    }
}

fn ticks_to_time(from: u64, to: u64, bits: u32, period_ns: f64) -> Duration {
    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    let ticks = to.wrapping_sub(from) & mask;
    // "Later" by more than half the range is in truth earlier: drivers may order stamps a tick off.
    let ticks = if ticks > mask / 2 { 0 } else { ticks };
    Duration::from_secs_f64(ticks as f64 * period_ns * 1e-9)
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: the owner drops a Gpu only when nothing is in flight, after everything made from it;
        // the instance goes after this.
        unsafe {
            self.raw.destroy_semaphore(self.timeline, None);
            self.raw.destroy_device(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::PoisonError;

    /// The device tests assert that the validation layer is silent; this shows that it can speak.
    #[test]
    fn validation_messages_arrive() {
        if !crate::validation_available() {
            eprintln!("skipped: the validation layer is not installed");
            return;
        }
        let Ok(instance) = Instance::new(true) else { return eprintln!("skipped: no Vulkan driver") };
        let adapter = crate::adapter::all(&instance).unwrap().swap_remove(0);
        let Ok(gpu) = Gpu::new(instance, adapter, false) else {
            return eprintln!("skipped: no usable device");
        };
        let heard = || gpu.instance.messages.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
        assert_eq!(heard(), "");
        // SAFETY: breaks one rule (VUID-VkBufferCreateInfo-size-00912, no empty buffers) that drivers
        // survive and the layer reports; what comes back is destroyed unused.
        unsafe {
            let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
            if let Ok(buffer) = gpu.raw.create_buffer(&vk::BufferCreateInfo::default().usage(usage), None) {
                gpu.raw.destroy_buffer(buffer, None);
            }
        }
        assert!(heard().contains("size-00912"), "{}", heard());
    }

    #[test]
    fn ticks_become_time() {
        let ns = |from, to, bits, period| ticks_to_time(from, to, bits, period).as_nanos();
        assert_eq!(ns(100, 350, 64, 10.0), 2500);
        assert_eq!(ns(100, 350, 64, 1.0), 250);
        assert_eq!(ns((1 << 36) - 10, 5, 36, 1.0), 15, "wraps at the valid bits");
        assert_eq!(ns(7, 7, 64, 1.0), 0);
        assert_eq!(ns(8, 7, 64, 1.0), 0, "a tick backwards is no aeon");
    }
}
