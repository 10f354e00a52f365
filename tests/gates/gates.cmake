# gates
