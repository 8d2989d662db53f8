"""What boosts cost: the ledger and the history in SQLite, and the reports made from them.

Imports `elastio.core` and `elastio.whole_file`. Everything but `database`, `ledger`, `recorder`, `history_store`,
`shared_caps` and `zone` is pure.
"""
