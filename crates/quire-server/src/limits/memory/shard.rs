//! One part of the table of sources, behind one lock.

use indexmap::IndexMap;
use quire_core::{
    admission::{Bucket, Budget, CreateBuckets, CreateBudgets},
    source::SourceKey,
};

/// Entries looked at for one to forget, at every newcomer. Two would keep up with newcomers; a few more let
/// a table that was once large shrink.
const LOOKED_AT: usize = 4;

/// What bounds one source.
#[derive(Clone, Copy)]
pub(super) struct SourceBudgets {
    pub(super) creates: CreateBudgets,
    pub(super) reads: Option<Budget>,
    pub(super) deletes: Option<Budget>,
}

/// What one source has left.
#[derive(Clone, Copy)]
pub(super) struct SourceBuckets {
    pub(super) creates: CreateBuckets,
    pub(super) reads: Bucket,
    pub(super) deletes: Bucket,
}

impl SourceBuckets {
    fn full(budgets: &SourceBudgets, now_us: u64) -> Self {
        let full = |budget: Option<Budget>| {
            budget.map_or(Bucket { level_micro: 0, at_us: now_us }, |budget| Bucket::full(budget, now_us))
        };
        Self {
            creates: CreateBuckets::full(budgets.creates, now_us),
            reads: full(budgets.reads),
            deletes: full(budgets.deletes),
        }
    }

    fn are_full(&self, budgets: &SourceBudgets, now_us: u64) -> bool {
        let full = |bucket: Bucket, budget: Option<Budget>| {
            budget.is_none_or(|budget| bucket.is_full(budget, now_us))
        };
        self.creates.are_full(budgets.creates, now_us)
            && full(self.reads, budgets.reads)
            && full(self.deletes, budgets.deletes)
    }
}

/// A bounded number of sources, and the entry that all further ones share.
pub(super) struct Shard {
    budgets: SourceBudgets,
    sources_max: usize,
    sources: IndexMap<SourceKey, SourceBuckets>,
    /// Where the search for an entry to forget goes on.
    hand: usize,
    overflow: SourceBuckets,
}

impl Shard {
    pub(super) fn new(budgets: SourceBudgets, sources_max: usize, now_us: u64) -> Self {
        let overflow = SourceBuckets::full(&budgets, now_us);
        Self { budgets, sources_max, sources: IndexMap::new(), hand: 0, overflow }
    }

    /// Runs `decide` on the buckets of a source: its own, or the shared ones if there is no place.
    pub(super) fn with<T>(
        &mut self,
        source: SourceKey,
        now_us: u64,
        decide: impl FnOnce(&mut SourceBuckets) -> T,
    ) -> T {
        if let Some(buckets) = self.sources.get_mut(&source) {
            return decide(buckets);
        }
        self.forget_some(now_us);
        if self.sources.len() >= self.sources_max {
            return decide(&mut self.overflow);
        }
        let fresh = SourceBuckets::full(&self.budgets, now_us);
        decide(self.sources.entry(source).or_insert(fresh))
    }

    fn forget_some(&mut self, now_us: u64) {
        for _ in 0..LOOKED_AT.min(self.sources.len()) {
            if self.hand >= self.sources.len() {
                self.hand = 0;
            }
            let forgettable = self
                .sources
                .get_index(self.hand)
                .is_some_and(|(_, buckets)| buckets.are_full(&self.budgets, now_us));
            if forgettable {
                // The last entry takes its place and is looked at next.
                self.sources.swap_remove_index(self.hand);
            } else {
                self.hand += 1;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sources.len()
    }
}
