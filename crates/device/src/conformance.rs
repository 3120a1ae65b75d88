//! One suite for every [`crate::Device`].
