//! The engine, and its first product, against a cloud.

mod cost;
mod lifecycle;
mod tiny_product;
