{ }: ./programs
