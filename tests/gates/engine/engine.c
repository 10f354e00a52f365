/* What an engine calls moe. */
int engine_moe(void);
int engine_moe(void) { return 1; }
