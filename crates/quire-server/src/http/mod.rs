//! The public listener.
