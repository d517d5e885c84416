"""What results say: measures, tables and pictures."""
