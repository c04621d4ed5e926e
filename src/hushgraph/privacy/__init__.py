"""One plan, one guarantee and one ledger: every number of the promise, derived once."""
