//! The fakes keep the contracts of the ports, as every adapter does: what is proven over them would mean
//! little otherwise.

use std::sync::Arc;

use quire_core::{
    paste::Id,
    ports::{PortFuture, Rows},
    testing::{bodies_contract, exec::run_or_drop, rows_contract, world::World},
    time::Timestamp,
};

struct Fake(Arc<World>);

impl rows_contract::RowsHarness for Fake {
    fn rows(&self) -> Arc<dyn Rows> {
        self.0.clone()
    }

    fn move_expiry(&self, id: Id, to: Timestamp) -> PortFuture<'_, ()> {
        if let Some(row) = self.0.state().rows.get_mut(&id) {
            row.expires_at = to;
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

#[test]
fn the_fake_rows_keep_the_contract() {
    run_or_drop(rows_contract::run_all(async || Fake(World::new()))).unwrap();
}

#[test]
fn the_fake_bodies_keep_the_contract() {
    run_or_drop(bodies_contract::all(|| World::new())).unwrap();
}
